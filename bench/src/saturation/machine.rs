//! CPU, memory bandwidth and disk for real: a thread for each operator takes events at their times and works on them.
//! Latency is from the moment an event was due. CPU is what the thread was busy, of one core.

use super::Point;
use crate::options::Options;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_secs(20);
const RUN_QUICK: Duration = Duration::from_secs(1);
const COPY_BYTES: usize = 2 << 20;
const FILE_BYTES: usize = 256 << 10;

/// What a thread does with an event.
type Work = Box<dyn FnMut() -> io::Result<()> + Send>;

/// How long each point is measured.
pub(super) fn duration(options: &Options) -> Duration {
    if options.quick { RUN_QUICK } else { RUN }
}

pub(super) fn points(options: &Options) -> Vec<Point> {
    let run = duration(options);
    let mut all = Vec::new();
    for rate in [100.0, 250.0, 500.0, 900.0] {
        let works = vec![Box::new(busy) as Work];
        all.extend(point("CPU", format!("{rate} events/s"), rate, run, works));
    }
    for threads in [1, 2, 4] {
        let works = (0..threads).map(|_| copies()).collect();
        all.extend(point("memory bandwidth", format!("{threads} operators"), 100.0, run, works));
    }
    let folder = Path::new("target/saturation");
    for threads in [1, 2] {
        let works: io::Result<Vec<Work>> = (0..threads).map(|at| stores(folder, at)).collect();
        match works {
            Ok(works) => {
                all.extend(point("disk", format!("{threads} operators"), 10.0, run, works));
            }
            Err(error) => eprintln!("no disk study: {}: {error}", folder.display()),
        }
    }
    let _ = fs::remove_dir_all(folder);
    all
}

fn busy() -> io::Result<()> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    Ok(())
}

fn copies() -> Work {
    let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![0_u8; COPY_BYTES]);
    Box::new(move || {
        to.copy_from_slice(black_box(&from));
        black_box(&to);
        Ok(())
    })
}

/// Reads a file and writes it to another, which is on the disk before it is done.
fn stores(folder: &Path, at: usize) -> io::Result<Work> {
    fs::create_dir_all(folder)?;
    let (from, to): (PathBuf, PathBuf) =
        (folder.join(format!("from{at}")), folder.join(format!("to{at}")));
    fs::write(&from, vec![7_u8; FILE_BYTES])?;
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    Ok(Box::new(move || {
        bytes.clear();
        File::open(&from)?.read_to_end(&mut bytes)?;
        let mut file = File::create(&to)?;
        file.write_all(&bytes)?;
        file.sync_all()
    }))
}

/// Runs the threads side by side. Returns `None` where one of them failed, and reports it.
fn point(
    study: &'static str,
    setting: String,
    rate: f64,
    run: Duration,
    works: Vec<Work>,
) -> Option<Point> {
    let threads: Vec<_> =
        works.into_iter().map(|work| thread::spawn(move || serve(rate, run, work))).collect();
    let (mut latencies, mut busy) = (Vec::new(), Duration::ZERO);
    for thread in threads {
        match thread.join().expect("a thread of the study does not panic") {
            Ok((mut took, worked)) => {
                latencies.append(&mut took);
                busy = busy.max(worked);
            }
            Err(error) => {
                eprintln!("{study}, {setting}: {error}");
                return None;
            }
        }
    }
    let mean_ms = latencies.iter().sum::<f64>() / latencies.len() as f64;
    let p99_ms = crate::stats::quantile(&latencies, 0.99);
    let cpu = (study != "disk").then(|| busy.as_secs_f64() / run.as_secs_f64());
    Some(Point { study, setting, mean_ms, p99_ms, used: [cpu, None, None, None] })
}

/// Events at their times; one that is late begins at once. Latencies in ms, and how long it worked.
fn serve(rate: f64, run: Duration, mut work: Work) -> io::Result<(Vec<f64>, Duration)> {
    let began = Instant::now();
    let (mut latencies, mut busy) = (Vec::new(), Duration::ZERO);
    for number in 0..(rate * run.as_secs_f64()) as u32 {
        let due = began + Duration::from_secs_f64(f64::from(number) / rate);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let start = Instant::now();
        work()?;
        busy += start.elapsed();
        latencies.push(due.elapsed().as_secs_f64() * 1e3);
    }
    Ok((latencies, busy))
}
