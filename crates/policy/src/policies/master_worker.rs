//! Master and workers: the master divides the problem, workers do its parts, and the master combines
//! their results. An event is a part of the problem, a thread a worker, and all workers take from one
//! queue. The master has threads of its own for what divides, which is sources and inputs, and for what
//! combines: the stateful stages at the end, behind which nothing but such stages comes, since results
//! can be put together only where all of them are seen.

use comporta_model::plan::defaults::THREADS_MAX;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use crate::control::{PolicyControl, Refused, StageInfo};
use crate::policy::Policy;
use crate::registry::Entry;

/// Some threads divide the work and combine results, the others do it.
#[derive(Clone, Copy, Debug)]
pub struct MasterWorker {
    masters: usize,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "master-worker",
        aliases: &["master"],
        about: "the master's threads run the sources and the stateful stages at the end, which combine; the others are workers on one queue",
        cites: "Freeman, Hupfer & Arnold, JavaSpaces Principles, Patterns, and Practice, 1999; \
                on stages: Han et al., An improved SEDA for master-worker computing, CyberC 2009",
        params: &[ParamSpec {
            name: "masters",
            about: "threads of the master, besides those of the cluster",
            kind: ParamKind::Count(1, THREADS_MAX),
            default: "1",
        }],
    };
    Entry::new(offer, MasterWorker::new)
}

impl MasterWorker {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        MasterWorker { masters: validated.count("masters") }
    }
}

impl Policy for MasterWorker {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let stages = control.stages().to_vec();
        let last = stages.iter().map(|stage| stage.depth).max();
        let divided = stages.iter().filter(|stage| stage.has_queue() && !stage.stateful);
        let divided_to = divided.map(|stage| stage.depth).max();
        let combines = |stage: &StageInfo| {
            let behind_all = Some(stage.depth) > divided_to || Some(stage.depth) == last;
            stage.has_queue() && stage.stateful && behind_all
        };
        let works = |stage: &StageInfo| stage.has_queue() && !combines(stage);
        let divides = stages.iter().filter(|stage| !stage.has_queue()).count();
        // Work brought from another cluster needs no master here, nor do masters without workers.
        if divides == 0 || !stages.iter().any(works) {
            return Ok(());
        }
        let workers = stages.iter().filter(|stage| works(stage)).count();
        let combine = stages.len() - divides - workers;
        control.explain(format!("{divides} divide the work, {workers} do it, {combine} combine"));
        let masters = control.new_pool(self.masters)?;
        for stage in stages.iter().filter(|stage| !works(stage)) {
            control.set_pool(masters, stage.id)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use crate::policies::started;

    #[test]
    fn sources_and_inputs_have_a_pool_and_the_rest_share_the_main_one() {
        let mock = Mock::new().source("files").input("clicks").stage("parse").stage("store");
        let (_, mut mock) = started("master-worker", mock);
        assert_eq!(
            mock.take_log(),
            ["new_pool 1 -> pool1", "set_pool pool1 files", "set_pool pool1 clicks"]
        );
        assert_eq!(mock.at("parse").pool, mock.at("store").pool);
    }

    #[test]
    fn the_master_combines_what_the_workers_found() {
        let mock = Mock::new().source("parts").stage("count").stateful("count").stage("solve");
        let mock = mock.stage("merge").stateful("merge").stage_at("tally", 3).stateful("tally");
        let (_, mock) = started("master-worker", mock.stage_at("log", 3));
        assert_eq!(
            mock.log()[1..],
            ["set_pool pool1 parts", "set_pool pool1 merge", "set_pool pool1 tally"],
            "state alone, and the end alone, combine nothing"
        );
        assert_eq!(mock.explained(), ["1 divide the work, 3 do it, 2 combine"]);
    }

    #[test]
    fn what_combines_may_take_several_steps() {
        let mock = Mock::new().source("parts").stage("sort").stateful("sort").stage("solve");
        let mock = mock.stage_at("count", 2).stateful("count"); // beside a worker
        let mock = mock.stage("merge").stateful("merge").stage("rank").stateful("rank");
        let (_, mock) = started("master-worker", mock);
        assert_eq!(
            mock.log()[1..],
            ["set_pool pool1 parts", "set_pool pool1 merge", "set_pool pool1 rank"]
        );
    }

    #[test]
    fn there_may_be_several_masters() {
        let mock = Mock::new().source("files").stage("parse");
        let (_, mock) = started("master-worker(masters=3)", mock);
        assert_eq!(mock.log()[0], "new_pool 3 -> pool1");
    }

    #[test]
    fn sources_alone_or_stages_alone_stay_where_they_are() {
        let combined = Mock::new().source("files").stage("sum").stateful("sum");
        for mock in [Mock::new(), Mock::new().source("files"), Mock::new().stage("parse"), combined]
        {
            assert!(started("master-worker", mock).1.log().is_empty());
        }
    }
}
