//! The last stage: it hears of every image twice, when it is found and when it is saved, and says
//! at the end what was done. What was found and not saved has failed on its way, or was left there.
//! If asked to, it compares each result with what its pixels must be by definition.

use std::io::{self, Write};
use std::path::PathBuf;

use comporta::{Cx, Error, Ev, Result, Stage, Time};

use crate::files::{self, Job};
use crate::{picture, plain, treat};

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Images that were found.
    pub found: u64,
    /// Images that were saved.
    pub saved: u64,
    /// Their pixels.
    pub pixels: u64,
    /// How many had to be drawn first.
    pub drawn: u64,
    /// How many are, pixel by pixel, what they must be.
    pub verified: u64,
}

/// The stage.
#[derive(Clone, Debug)]
pub struct Report {
    folder: PathBuf,
    /// The level of the first threshold, if results are to be compared.
    verify: Option<u8>,
    tally: Tally,
    began: Option<Time>,
}

impl Report {
    /// Says that results are in `folder`; compares them, if it is told with what level they are made.
    #[must_use]
    pub fn new(folder: PathBuf, verify: Option<u8>) -> Self {
        Report { folder, verify, tally: Tally::default(), began: None }
    }

    fn compare(&self, job: &Job, level: u8) -> Result {
        let mut file = Vec::new();
        files::read(&job.path, &mut file)?;
        let expected = plain::defined(&file, level)?;
        let path = self.folder.join(files::name(job.number));
        files::read(&path, &mut file)?;
        let found = treat::grayscale(picture::decode(&file)?);
        match plain::difference(&found, &expected) {
            None => Ok(()),
            Some(what) => Err(Error::msg(format!("{}: {what}", path.display()))),
        }
    }
}

impl Stage for Report {
    type In = Job;
    type Ports = ();
    const STATEFUL: bool = true;

    fn handle(&mut self, job: Ev<'_, Job>, (): &mut (), cx: &Cx) -> Result {
        self.began.get_or_insert(cx.now());
        let Some(pixels) = job.saved else {
            self.tally.found += 1;
            return Ok(());
        };
        self.tally.saved += 1;
        self.tally.pixels += pixels;
        self.tally.drawn += u64::from(job.drawn);
        if let Some(level) = self.verify {
            self.compare(&job, level)?;
            self.tally.verified += 1;
        }
        Ok(())
    }

    fn finish(&mut self, (): &mut (), cx: &Cx) -> Result {
        let now = cx.now();
        let seconds = now.duration_since(self.began.unwrap_or(now)).as_secs_f64();
        let verify = self.verify.is_some();
        say(&mut io::stdout().lock(), &self.tally, seconds, verify, &self.folder.display())?;
        Ok(())
    }
}

fn say(
    to: &mut impl Write,
    tally: &Tally,
    seconds: f64,
    verify: bool,
    folder: &impl std::fmt::Display,
) -> io::Result<()> {
    let Tally { found, saved, pixels, drawn, verified } = *tally;
    writeln!(to, "{saved} of {found} images are in {folder}")?;
    if drawn > 0 {
        writeln!(to, "{drawn} were drawn first, which took its time; the next run finds them")?;
    }
    if verify {
        writeln!(
            to,
            "verified: {verified} of {saved} are, pixel by pixel, what a plain loop makes"
        )?;
    }
    let millions = pixels as f64 / 1e6;
    let rate = if seconds > 0.0 { millions / seconds } else { 0.0 };
    let failures = found.saturating_sub(saved);
    writeln!(
        to,
        "{saved} images, {millions:.1} megapixels in {seconds:.1} s: {rate:.1} megapixels/s; \
         failures: {failures}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use comporta::testing::StageTester;
    use std::fs;

    #[test]
    fn a_wrong_pixel_is_a_failure_with_its_place() {
        let folder = std::env::temp_dir().join(format!("images-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut file = Vec::new();
        let black = picture::Grey { width: 9, height: 7, pixels: vec![0; 63] };
        picture::encode(&black, &mut file).unwrap();
        let path = folder.join("black.png");
        fs::write(&path, &file).unwrap();
        let mut result = black;
        result.pixels.fill(255); // all ink
        let job = Job { saved: Some(63), ..Job::new(0, path) };
        let mut report = StageTester::new(Report::new(folder.clone(), Some(128)));
        let mut push = |result: &picture::Grey| {
            picture::encode(result, &mut file).unwrap();
            fs::write(folder.join(files::name(0)), &file).unwrap();
            report.send(job.clone())
        };
        push(&result).unwrap();
        result.pixels[9 * 3 + 4] = 0;
        let reason = push(&result).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        assert!(reason.ends_with("the pixel at 4, 3 is 0 instead of 255"), "{reason}");
        assert_eq!((report.stage.tally.saved, report.stage.tally.verified), (2, 1));
    }

    #[test]
    fn the_last_line_tells_images_speed_and_failures() {
        let tally = Tally { found: 12, saved: 10, pixels: 25_000_000, drawn: 0, verified: 0 };
        let mut text = Vec::new();
        say(&mut text, &tally, 2.5, false, &"out").unwrap();
        let said = String::from_utf8(text).unwrap();
        assert_eq!(
            said,
            "10 of 12 images are in out\n\
             10 images, 25.0 megapixels in 2.5 s: 10.0 megapixels/s; failures: 2\n"
        );
    }
}
