//! The state of one key of a keyed stage, read and set from outside. Before: `control`, whose methods these are.
//! Invariant: the lane of the key is closed meanwhile, so that no handler has the state.

use std::any::{TypeId, type_name};
use std::time::Duration;

use comporta_model::keyed::LaneRef;

use crate::control::{Control, ControlError};
use crate::effects::Effects;
use crate::failure::Reason;
use crate::node::Node;
use crate::path::route::end_of;
use crate::sync::Arc;
use crate::user;

/// How often, and how long after one another at most, a lane is looked at that a visit has.
const KEY_LOOKS: usize = 100;
const KEY_LOOK: Duration = Duration::from_millis(10);

fn failed(stage: &str, reason: &Reason) -> ControlError {
    ControlError::KeyFailed { stage: stage.to_owned(), reason: reason.to_string() }
}

impl Control {
    /// Returns a copy of the state that a keyed stage has for a key, if it has any. Waits, for a second at most, for a
    /// handler that has it.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown or has no such keys, or if a handler has the state and does not
    /// return.
    pub fn key_state<K: 'static, S: Clone + 'static>(
        &self,
        stage: &str,
        key: &K,
    ) -> Result<Option<S>, ControlError> {
        let node = self.keyed::<K, S>(stage, key)?;
        let find = || node.keys().and_then(|keys| keys.find(key));
        let found = user::call(find).map_err(|reason| failed(stage, &reason))?;
        let Some(lane) = found else { return Ok(None) };
        let mut state = None;
        self.with_lane(stage, node, lane, &mut |lane| state = lane.state::<K, S>())?;
        Ok(state)
    }

    /// Sets the state that a keyed stage has for a key, as [`key_state`](Self::key_state) reads it. Returns the one
    /// before.
    ///
    /// # Errors
    /// As [`key_state`](Self::key_state).
    pub fn set_key_state<K: 'static, S: 'static>(
        &self,
        stage: &str,
        key: K,
        state: S,
    ) -> Result<Option<S>, ControlError> {
        let node = self.keyed::<K, S>(stage, &key)?;
        let lane = || node.keys().and_then(|keys| keys.lane(Box::new(key)));
        let found = user::call(lane).map_err(|reason| failed(stage, &reason))?;
        let Some(lane) = found else { return Ok(None) };
        let (mut state, mut before) = (Some(state), None);
        self.with_lane(stage, node, lane, &mut |lane| {
            before = state.take().and_then(|state| lane.set_state::<K, S>(state));
        })?;
        Ok(before)
    }

    /// Has the busiest keys of a keyed stage counted from now on:
    /// [`StageSnapshot::top_keys`](crate::StageSnapshot::top_keys) shows them. It costs each event that comes some tens of
    /// nanoseconds, and keeps at most 64 keys from being forgotten.
    ///
    /// # Errors
    /// Returns an error if the stage is unknown, or is not keyed.
    pub fn count_keys(&self, stage: &str) -> Result<(), ControlError> {
        let replicas = self.core.replicas.of(self.queue(stage)?);
        let counted = replicas.iter().all(|id| self.core.node(id.0).count_keys());
        counted.then_some(()).ok_or_else(|| ControlError::NoKeys { stage: stage.to_owned() })
    }

    /// The replica that has a key, of a stage whose keys and states are of these types.
    fn keyed<K: 'static, S: 'static>(
        &self,
        stage: &str,
        key: &K,
    ) -> Result<&Arc<dyn Node>, ControlError> {
        let replicas = self.core.replicas.of(self.queue(stage)?);
        let first = self.core.node(replicas[0].0);
        let types = (TypeId::of::<K>(), TypeId::of::<S>());
        let keys = first.keys().filter(|keys| keys.types() == types);
        let keys = keys.ok_or_else(|| ControlError::NotKeyed {
            stage: stage.to_owned(),
            key: type_name::<K>(),
            state: type_name::<S>(),
        })?;
        if replicas.len() == 1 {
            return Ok(first);
        }
        let route = user::call(|| keys.route_of(key)).map_err(|reason| failed(stage, &reason))?;
        let at = route.map_or(0, |route| end_of(route, replicas.len()));
        Ok(self.core.node(replicas[at].0))
    }

    fn with_lane(
        &self,
        stage: &str,
        node: &Arc<dyn Node>,
        lane: LaneRef,
        call: &mut dyn FnMut(&LaneRef),
    ) -> Result<(), ControlError> {
        let mut lane = Some(lane);
        for _ in 0..KEY_LOOKS {
            let mut effects = Effects::default();
            let called = node.with_lane(&self.core, &mut lane, call, &mut effects);
            self.core.dispatch(effects);
            if called {
                return Ok(());
            }
            node.wait_for_lane(KEY_LOOK);
        }
        Err(ControlError::KeyBusy(stage.to_owned()))
    }
}
