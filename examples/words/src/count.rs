//! The program: lines → split → count → top → show. Nothing here says how it runs.
//!
//! Each instance of `count` has a map of its own, so that counting needs no locks; when the text
//! has ended it hands its counts on, and `top`, of which there is only one, adds them up.

use std::collections::HashMap;

use comporta::{App, Cx, Ev, Out, Outcome, Result, Stage, sources};

use crate::text::{Text, generate};

/// A word, and how often it came.
pub(crate) type Tally = (String, u64);

/// Takes lines, sends their words in lower case.
#[derive(Clone)]
struct Split;

impl Stage for Split {
    type In = String;
    type Ports = Out<String>;

    fn handle(&mut self, line: Ev<'_, String>, out: &mut Out<String>, _: &Cx) -> Result {
        for word in line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            out.send(word.to_lowercase());
        }
        Ok(())
    }
}

/// Takes words; sends how often each came, after the last.
#[derive(Clone, Default)]
struct Count {
    times: HashMap<String, u64>,
}

impl Stage for Count {
    type In = String;
    type Ports = Out<Tally>;

    fn handle(&mut self, word: Ev<'_, String>, _: &mut Out<Tally>, _: &Cx) -> Result {
        match self.times.get_mut(&*word) {
            Some(times) => *times += 1,
            None => drop(self.times.insert(word.take(), 1)),
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<Tally>, _: &Cx) -> Result {
        self.times.drain().for_each(|tally| out.send(tally));
        Ok(())
    }
}

/// Takes partial counts, adds them up; sends the most frequent words, after the last.
#[derive(Clone, Default)]
struct Top {
    most: usize,
    times: HashMap<String, u64>,
}

impl Stage for Top {
    type In = Tally;
    type Ports = Out<Tally>;

    fn handle(&mut self, tally: Ev<'_, Tally>, _: &mut Out<Tally>, _: &Cx) -> Result {
        let (word, times) = tally.take();
        *self.times.entry(word).or_default() += times;
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<Tally>, _: &Cx) -> Result {
        let mut all: Vec<Tally> = self.times.drain().collect();
        all.sort_unstable_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
        all.into_iter().take(self.most).for_each(|tally| out.send(tally));
        Ok(())
    }
}

/// Joins the stages. `show` is handed the `most` frequent words, the most frequent first.
pub(crate) fn app<R: Outcome + 'static>(
    text: Text,
    most: usize,
    show: impl FnMut(Tally) -> R + Clone + Send + Sync + 'static,
) -> App {
    let app = App::new("words");
    let lines = match text {
        Text::File(path) => app.source("lines", move || sources::lines(path)),
        Text::Generated { lines, seed } => app.source("lines", move || generate(seed).take(lines)),
    };
    let split = app.stage("split", Split);
    let count = app.stage("count", Count::default());
    let top = app.stage("top", Top { most, ..Top::default() }).stateful();
    let show = app.sink("show", show).stateful();
    app.connect(lines, split);
    app.connect(split, count);
    app.connect(count, top);
    app.connect(top, show);
    app
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use comporta::testing::StageTester;
    use comporta::{Ended, Plan};

    use super::*;

    /// One thread, one map, nothing clever.
    fn counted_plainly(lines: impl Iterator<Item = String>) -> Vec<Tally> {
        let text = lines.collect::<Vec<_>>().join("\n").to_lowercase();
        let mut times = BTreeMap::<&str, u64>::new();
        for word in text.split([' ', ',', '.', '\n']).filter(|word| !word.is_empty()) {
            *times.entry(word).or_default() += 1;
        }
        let mut all: Vec<_> = times.into_iter().map(|(word, n)| (word.to_owned(), n)).collect();
        all.sort_by_key(|(_, n)| std::cmp::Reverse(*n)); // stable: equal counts stay in order
        all
    }

    #[test]
    fn every_plan_counts_like_a_single_loop() {
        let (lines, seed) = (3_000, 7);
        let expected = counted_plainly(generate(seed).take(lines));
        let words: u64 = expected.iter().map(|(_, times)| times).sum();
        for policy in ["stealing", "single", "srpt"] {
            for (threads, instances) in [(1, 1), (2, 2), (4, 3)] {
                let seen = Arc::new(Mutex::new(Vec::new()));
                let into = seen.clone();
                let see = move |tally| into.lock().unwrap().push(tally);
                let app = app(Text::Generated { lines, seed }, usize::MAX, see);
                let plan = Plan::new()
                    .threads(threads)
                    .policy(policy)
                    .every(|stage| stage.instances(instances).capacity(100));
                let summary = app.run(&plan).unwrap();
                assert_eq!(summary.ended, Ended::Complete);
                assert!(summary.snapshot.adds_up(), "{summary}");
                assert_eq!(summary.snapshot.stage("count").unwrap().counts.handled, words);
                assert!(*seen.lock().unwrap() == expected, "{policy} {threads} {instances}");
            }
        }
    }

    #[test]
    fn split_sends_words_without_case_and_marks() {
        let mut split = StageTester::new(Split);
        split.send("The sea -- the SEA, 2 Ärzte!".to_owned()).unwrap();
        let words: Vec<_> = split.out.drain().collect();
        assert_eq!(words, ["the", "sea", "the", "sea", "2", "ärzte"]);
    }

    #[test]
    fn top_adds_partial_counts_and_keeps_the_most_frequent() {
        let mut top = StageTester::new(Top { most: 2, ..Top::default() });
        for (word, times) in [("sea", 2), ("tide", 4), ("gate", 1), ("sea", 3), ("ebb", 4)] {
            top.send((word.to_owned(), times)).unwrap();
        }
        top.finish().unwrap();
        let most: Vec<_> = top.out.drain().collect();
        assert_eq!(most, [("sea".to_owned(), 5), ("ebb".to_owned(), 4)]);
    }
}
