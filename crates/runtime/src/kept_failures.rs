//! Failed events that are kept: seen, taken away and put back, those of all replicas of a stage together.

use std::any::{TypeId, type_name};

use comporta_model::event::Time;
use comporta_model::graph::StageId;

use crate::control::{Control, ControlError};
use crate::core::Core;
use crate::effects::Effects;
use crate::failure::Failure;

impl Control {
    /// Returns the failures of a stage, without the events themselves, oldest first.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown.
    pub fn failures(&self, stage: &str) -> Result<Vec<Failure>, ControlError> {
        Ok(self.core.failures(self.core.replicas.of(self.stage(stage)?)))
    }

    /// Removes and returns the failures of a stage, each with its event if it is still there.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown or has no queue, or if `T` is not its input type. Nothing
    /// is removed then.
    pub fn take_failures<T: 'static>(
        &self,
        stage: &str,
    ) -> Result<Vec<(Failure, Option<T>)>, ControlError> {
        let id = self.queue(stage)?;
        let mut effects = Effects::default();
        let taken = self.core.replicas.of(id).iter().map(|replica| {
            let node = self.core.node(replica.0);
            let taken = node.take_failures(&self.core, TypeId::of::<T>(), &mut effects);
            taken.downcast::<Vec<(Failure, Option<T>)>>()
        });
        let taken: Result<Vec<_>, _> = taken.collect();
        self.core.dispatch(effects);
        let taken = taken.map_err(|_| ControlError::WrongType {
            stage: stage.to_owned(),
            takes: self.core.graph.stages[id.index()].takes,
            asked: type_name::<T>(),
        })?;
        let mut taken: Vec<_> = taken.into_iter().flat_map(|taken| *taken).collect();
        taken.sort_by_key(|(failure, _)| failure.at);
        Ok(taken)
    }

    /// Puts up to `max` failed events of a stage back into its queue, oldest first, as far as there is
    /// room; one that holds its key needs none. Returns how many events were put back. A deadline that has passed is forgotten: the event is handled, late as
    /// it is.
    ///
    /// An event that its handler has taken, as closures do, is there if a copy was kept: where the plan retries or holds
    /// keys, where the error port is connected, under `run --failures`, or after
    /// [`StageRef::retain`](crate::StageRef::retain). Others cannot be put back; [`Failure::replayable`] says which.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown.
    pub fn replay(&self, stage: &str, max: usize) -> Result<usize, ControlError> {
        let id = self.stage(stage)?;
        let mut effects = Effects::default();
        let replicas = self.core.replicas.of(id);
        let replayed = match *replicas {
            [one] => self.core.node(one.0).replay(&self.core, max, &mut effects),
            _ => {
                // Each has its own, in order: so many of each are among the oldest of all.
                let mut oldest: Vec<(Time, StageId)> = Vec::new();
                for id in replicas {
                    let failures = self.core.node(id.0).failures().into_iter();
                    let there = failures.filter(|failure| failure.replayable);
                    oldest.extend(there.map(|failure| (failure.at, *id)));
                }
                oldest.sort_by_key(|(at, _)| *at);
                oldest.truncate(max);
                let of = |id: &StageId| oldest.iter().filter(|(_, of)| of == id).count();
                let replay = |id: &StageId| (id.0, of(id));
                let counts = replicas.iter().map(replay).filter(|(_, n)| *n > 0);
                counts.map(|(id, n)| self.core.node(id).replay(&self.core, n, &mut effects)).sum()
            }
        };
        self.core.dispatch(effects);
        Ok(replayed)
    }
}

impl Core {
    /// The failures of a stage, oldest first.
    pub(crate) fn failures(&self, replicas: &[StageId]) -> Vec<Failure> {
        let mut failures: Vec<Failure> =
            replicas.iter().flat_map(|id| self.node(id.0).failures()).collect();
        failures.sort_by_key(|failure| failure.at); // stable: those of one replica are in order
        failures
    }
}
