//! `images`: the program of the example `images`, seven stages over captchas of all sizes, under the
//! policies of a published table, and against the same steps without Comporta.
//!
//! 1. `plans`  the published configurations, how they are scaled to this machine, and the others
//! 2. `work`   the images, as files; where results go; what they must be
//! 3. `peers::images`  ours, and the peers
//!
//! What is measured is a whole run, from the first file to the last result in its folder, with the
//! threads it starts. Published were 5,000 images (`--size 5000`); a run of fewer has the same mixture of
//! sizes. Comparing the results with what a plain loop makes (after every run) is not measured either.
//!
//! Our best policy is not chosen by what it is judged by: the table chooses the best and the worst,
//! and those two and rayon then run against each other, in rounds of three. A run is then a quarter
//! as long, so that the machine is the same for all of a round, and the rounds take other images in
//! turn: which of a few comes last, on one processor while the other is idle, is chance.

pub(crate) mod work;
mod plans;

use crate::options::Options;
use crate::peers::images::{ImagesPeer, PEERS, comporta};
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::{Series, interleave, interleave_unwatched};
use crate::stats::{Ratio, median, quantile};
use ::images::draw::{LARGEST, SMALLEST};
use plans::{CONFIGURATIONS, Configuration, Size};
use std::sync::Arc;
use std::time::Instant;
use work::{Folder, Images, queue};

pub(crate) const ABOUT: &str = "captchas made black and white: the policies of a published table, rayon and a pipeline by hand";

const BARS: &[Bar] = &[Bar {
    name: "vs_rayon",
    limit: Limit::AtLeast(0.97),
    about: "our best policy's throughput, against rayon's",
}];

/// About a second a run on two cores: the largest image, 25 ms, may come last, and weighs little.
const COUNT: usize = 400;
const COUNT_QUICK: usize = 12;
const COUNT_PUBLISHED: usize = 5_000;
/// Rounds between the best, the worst and rayon, for each of the table.
const FINAL_ROUNDS: usize = 20;
/// Sets of images that these rounds take in turn, and into how many parts of the table's each fits.
const FINAL_SETS: usize = 8;
const FINAL_PART: usize = 4;
/// Makes the images up; `--seed` is for the order of the runs.
const IMAGES_SEED: u64 = 1;

/// Who takes part.
enum Entrant {
    Policy(&'static Configuration),
    Peer(&'static ImagesPeer),
}

impl Entrant {
    fn name(&self) -> &'static str {
        match self {
            Entrant::Policy(row) => row.name,
            Entrant::Peer(peer) => peer.name,
        }
    }

    fn is_policy(&self) -> bool {
        matches!(self, Entrant::Policy(_))
    }

    /// Seconds of one run.
    fn run(&self, images: &Images, cores: usize) -> f64 {
        let folder = Arc::new(Folder::new());
        let size = Size { cores, images: images.files.len() };
        let started = Instant::now();
        match self {
            Entrant::Policy(row) => comporta::run(images, &folder, &row.plan(size)),
            Entrant::Peer(peer) => (peer.run)(images, &folder, cores),
        }
        let elapsed = started.elapsed().as_secs_f64();
        images.check(self.name(), &folder);
        elapsed
    }
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("images", options, BARS);
    let count = options.size.unwrap_or(if options.quick { COUNT_QUICK } else { COUNT });
    let images = Images::new(count, LARGEST.0, IMAGES_SEED);
    let megapixels = images.pixels as f64 / 1e6;
    println!(
        "images: {} rounds, {} cores, {count} images (published: {COUNT_PUBLISHED}) of {} x {} to \
         {} x {}, {megapixels:.1} megapixels, {:.1} MB in files, queues of {}",
        options.rounds,
        options.threads,
        SMALLEST.0,
        SMALLEST.1,
        LARGEST.0,
        LARGEST.1,
        images.bytes as f64 / 1e6,
        queue(options.threads),
    );
    let policies =
        CONFIGURATIONS.iter().filter(|row| options.takes_case(row.name)).map(Entrant::Policy);
    let peers = PEERS.iter().filter(|peer| options.takes_peer(peer.name)).map(Entrant::Peer);
    let entrants: Vec<Entrant> = policies.chain(peers).collect();
    let series = interleave(&entrants, options.rounds, options.seed, "images", |entrant, _| {
        entrant.run(&images, options.threads)
    });
    report.figure("images", count as f64);
    report.figure("megapixels", megapixels);
    report.figure("megabytes", images.bytes as f64 / 1e6);
    let shared = Size { cores: options.threads, images: count }.shared();
    report.figure("threads_shared", shared as f64);
    println!("policies that share their threads have {shared}, and as many instances a stage");
    tell(&entrants, &series, &images, options, &mut report);
    judge(&entrants, &series, count, options, &mut report);
    report.close();
    report
}

/// Prints the table and files its figures.
// Long because a table is written column by column.
fn tell(
    entrants: &[Entrant],
    series: &[Series<f64>],
    images: &Images,
    options: &Options,
    report: &mut Report,
) {
    let megapixels = images.pixels as f64 / 1e6;
    let size = Size { cores: options.threads, images: images.files.len() };
    let mut table = Table::new(&[
        "policy or peer",
        "published",
        "of single",
        "ms",
        "p10 .. p90",
        "of single",
        "Mpixel/s",
        "cpu ms",
        "it/rayon",
        "others",
        "meaning",
    ]);
    let single = entrants.iter().position(|entrant| entrant.name() == CONFIGURATIONS[0].name);
    let rayon = entrants.iter().position(|entrant| entrant.name() == "rayon");
    for (place, (entrant, samples)) in entrants.iter().zip(series).enumerate() {
        let ms = samples.figures(|seconds| seconds * 1e3);
        let (middle, p10, p90) = (median(&ms), quantile(&ms, 0.1), quantile(&ms, 0.9));
        // Time over time, as the published figures are: more is slower.
        let of_single = single
            .map(|single| Ratio::paired(&samples.samples, &series[single].samples, options.seed));
        let vs_rayon = rayon.filter(|&rayon| rayon != place).map(|rayon| {
            Ratio::paired(&throughput(samples), &throughput(&series[rayon]), options.seed)
        });
        let mut figures = vec![
            ("ms", middle),
            ("ms_p10", p10),
            ("ms_p90", p90),
            ("megapixels_per_s", megapixels * 1e3 / middle),
            ("cpu_ms", samples.own_cpu_ms),
            ("others_cpu_percent", samples.others_cpu_percent),
        ];
        if let Some(ratio) = &of_single {
            figures.extend([
                ("of_single", ratio.median),
                ("of_single_low", ratio.low),
                ("of_single_high", ratio.high),
            ]);
        }
        if let Some(ratio) = &vs_rayon {
            figures.extend([
                ("vs_rayon", ratio.low),
                ("vs_rayon_median", ratio.median),
                ("vs_rayon_high", ratio.high),
            ]);
        }
        let (seconds, meaning) = match entrant {
            Entrant::Policy(row) => (row.published_s, row.shown(size)),
            Entrant::Peer(peer) => (None, peer.about.to_owned()),
        };
        let share = seconds.zip(CONFIGURATIONS[0].published_s).map(|(its, first)| its / first);
        figures.extend(seconds.map(|seconds| ("published_s", seconds)));
        figures.extend(share.map(|share| ("published_of_single", share)));
        let dash = || "-".to_owned();
        table.row([
            entrant.name().to_owned(),
            seconds.map_or_else(dash, |seconds| format!("{seconds:.0} s")),
            share.map_or_else(dash, |share| format!("{share:.2}")),
            format!("{middle:.1}"),
            format!("{p10:.1} .. {p90:.1}"),
            of_single.as_ref().map_or_else(dash, show_ratio),
            format!("{:.1}", megapixels * 1e3 / middle),
            format!("{:.0}", samples.own_cpu_ms),
            vs_rayon.as_ref().map_or_else(dash, show_ratio),
            format!("{:.0} %", samples.others_cpu_percent),
            meaning,
        ]);
        report.detail("images", entrant.name(), &figures);
    }
    println!();
    table.print();
}

fn throughput(samples: &Series<f64>) -> Vec<f64> {
    samples.figures(|seconds| 1.0 / seconds)
}

/// Has the best and the worst of the table run once more against each other and rayon, and files
/// what the bar and the spread are about.
fn judge(
    entrants: &[Entrant],
    series: &[Series<f64>],
    count: usize,
    options: &Options,
    report: &mut Report,
) {
    let policies = entrants.iter().zip(series).filter(|(entrant, _)| entrant.is_policy());
    let middle = |(entrant, samples): (_, &Series<f64>)| (entrant, median(&samples.samples));
    let policies: Vec<(&Entrant, f64)> = policies.map(middle).collect();
    let by_time = |a: &&(&Entrant, f64), b: &&(&Entrant, f64)| a.1.total_cmp(&b.1);
    let (Some((best, _)), Some((worst, _))) =
        (policies.iter().min_by(by_time), policies.iter().max_by(by_time))
    else {
        return;
    };
    report.text("best_policy", best.name());
    report.text("worst_policy", worst.name());
    let rayon = entrants.iter().find(|entrant| entrant.name() == "rayon");
    let finalists: Vec<&Entrant> = [*best, *worst].into_iter().chain(rayon).collect();
    let rounds = options.rounds * FINAL_ROUNDS;
    let sets: Vec<Images> = (1..=FINAL_SETS as u64)
        .map(|set| Images::new(count.div_ceil(FINAL_PART), LARGEST.0, IMAGES_SEED + set))
        .collect();
    let finals = interleave_unwatched(
        &finalists,
        rounds,
        options.seed,
        "images, the best",
        |entrant, round| entrant.run(&sets[round % sets.len()], options.threads),
    );
    let against =
        |of: usize| Ratio::paired(&throughput(&finals[0]), &throughput(&finals[of]), options.seed);
    let spread = against(1);
    report.figure("final_rounds", rounds as f64);
    report.ratio("spread_best_worst", &spread, Better::More);
    report.figure("spread_best_worst_high", spread.high);
    println!(
        "\nbest policy: {}; worst: {}; between them, in {rounds} rounds of their own: {}",
        best.name(),
        worst.name(),
        show_ratio(&spread)
    );
    if rayon.is_some() {
        let ratio = against(2);
        report.ratio("vs_rayon", &ratio, Better::More);
        report.figure("vs_rayon_high", ratio.high);
        println!("best policy against rayon, in the same: {}", show_ratio(&ratio));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_and_every_peer_makes_what_a_plain_loop_makes() {
        let images = Images::new(9, 280, IMAGES_SEED);
        let policies = CONFIGURATIONS.iter().map(Entrant::Policy);
        for entrant in policies.chain(PEERS.iter().map(Entrant::Peer)) {
            for cores in [1, 3] {
                entrant.run(&images, cores);
            }
        }
    }
}
