//! Master and workers: sources and inputs, which bring work in, have threads of their own; all
//! other threads take what they brought from one queue. An event is a part of the problem, a
//! thread a worker.

use comporta_model::plan::defaults::THREADS_MAX;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use crate::control::{PolicyControl, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// Some threads bring work in, the others do it.
#[derive(Clone, Copy, Debug)]
pub struct MasterWorker {
    masters: usize,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "master-worker",
        aliases: &["master"],
        about: "threads of their own for sources; one ready queue and its threads as workers",
        cites: "Freeman, Hupfer & Arnold, JavaSpaces Principles, Patterns, and Practice, 1999; \
                on stages: Han et al., An improved SEDA for master-worker computing, CyberC 2009",
        params: &[ParamSpec {
            name: "masters",
            about: "threads for sources, besides those of the cluster",
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
        let (work, bring): (Vec<_>, Vec<_>) =
            control.stages().to_vec().into_iter().partition(|stage| stage.has_queue());
        // Work brought from another cluster needs no master here, nor do masters without workers.
        if work.is_empty() || bring.is_empty() {
            return Ok(());
        }
        control.explain(format!("{} bring work in, {} do it", bring.len(), work.len()));
        let masters = control.new_pool(self.masters)?;
        for stage in bring {
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
    fn there_may_be_several_masters() {
        let mock = Mock::new().source("files").stage("parse");
        let (_, mock) = started("master-worker(masters=3)", mock);
        assert_eq!(mock.log()[0], "new_pool 3 -> pool1");
    }

    #[test]
    fn sources_alone_or_stages_alone_stay_where_they_are() {
        for mock in [Mock::new(), Mock::new().source("files"), Mock::new().stage("parse")] {
            assert!(started("master-worker", mock).1.log().is_empty());
        }
    }
}
