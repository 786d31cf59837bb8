//! What a policy is, and when it is called.

use crate::control::{PolicyControl, Refused, TimerId};

/// Decides how the threads of a cluster choose what to do next.
///
/// A policy acts only through the [`PolicyControl`] it is handed. Its methods are called one at a time,
/// by whichever thread has reason to, and should return soon: that thread waits for them. A refusal
/// that a method returns is reported, and the policy goes on; a panic replaces it by the default
/// one, and the program goes on.
pub trait Policy: Send {
    /// Called once, before events flow under this policy. The cluster is as the plan has it: one
    /// pool with all stages, capacities, priorities and instances as said there, one ready queue.
    ///
    /// # Errors
    /// Why it cannot run this cluster: then it is not used.
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused>;

    /// A timer is due.
    ///
    /// # Errors
    /// What the control refused, to be reported.
    fn on_timer(
        &mut self,
        _timer: TimerId,
        _control: &mut dyn PolicyControl,
    ) -> Result<(), Refused> {
        Ok(())
    }

    /// A thread has come to the last place of the visit order: see
    /// [`set_fire_last_focused`](PolicyControl::set_fire_last_focused).
    ///
    /// # Errors
    /// What the control refused, to be reported.
    fn on_last_focused(&mut self, _control: &mut dyn PolicyControl) -> Result<(), Refused> {
        Ok(())
    }

    /// The threads have made the visits that were asked for: see
    /// [`set_max_visits`](PolicyControl::set_max_visits).
    ///
    /// # Errors
    /// What the control refused, to be reported.
    fn on_max_visits(&mut self, _control: &mut dyn PolicyControl) -> Result<(), Refused> {
        Ok(())
    }
}
