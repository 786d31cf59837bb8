//! What a sender's ports of one type are joined by: their links, and the outlets that these share. One box for each type,
//! so that a port finds both by one look at it.
//! Used by `emit`, which hands what a port holds to its link.

use std::any::Any;

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::path::direct::{Ahead, Direct};
use crate::path::emit::Link;
use crate::path::line::Place;
use crate::path::outlet::Outlet;
use crate::path::room::Room;
use crate::sync::Arc;

/// The outlets of a sender that carry one type.
pub(super) type Outlets<T> = Vec<Outlet<T>>;

/// See the header.
pub(super) struct Bundle<T> {
    pub(super) links: Vec<Link<T>>,
    pub(super) outlets: Outlets<T>,
}

impl<T> Default for Bundle<T> {
    fn default() -> Self {
        Bundle { links: Vec::new(), outlets: Vec::new() }
    }
}

impl<T: Send + 'static> Bundle<T> {
    /// The bundle behind `any`, which is of this type.
    #[inline(always)]
    pub(super) fn of(any: &mut dyn AnyBundle) -> &mut Self {
        any.as_any().downcast_mut().expect("`connect` joins only what carries the same type")
    }
}

/// How a port of a sender is joined: where its link is, and its way if there is only one.
pub(crate) struct PortLink {
    bundle: usize,
    link: usize,
    /// A [`Direct<T>`], if there is one.
    direct: Option<Box<dyn Any + Send>>,
    ahead: Option<Ahead>,
}

impl PortLink {
    pub(super) fn new<T: Send + 'static>(
        bundle: usize,
        link: usize,
        direct: Option<(Direct<T>, Option<Ahead>)>,
    ) -> Self {
        let (direct, ahead) = direct.unzip();
        let direct = direct.map(|direct| Box::new(direct) as Box<dyn Any + Send>);
        PortLink { bundle, link, direct, ahead: ahead.flatten() }
    }

    /// How much room there seems to be on the one way of its events, if that is known without asking.
    #[inline(always)]
    pub(super) fn room(&self) -> Option<Room> {
        self.ahead.as_ref()?.room()
    }

    /// The link, and the outlets that it may use.
    #[inline(always)]
    pub(super) fn of<'a, T: Send + 'static>(
        &self,
        bundles: &'a mut [Box<dyn AnyBundle>],
    ) -> (&'a mut Link<T>, &'a mut Outlets<T>) {
        let Bundle { links, outlets } = Bundle::of(&mut *bundles[self.bundle]);
        (&mut links[self.link], outlets)
    }

    /// The one way of its events, if there is only one.
    #[inline(always)]
    pub(super) fn direct<T: Send + 'static>(&self) -> Option<&Direct<T>> {
        self.direct.as_ref()?.downcast_ref()
    }
}

/// A bundle, whatever its type.
pub(crate) trait AnyBundle: Any + Send {
    /// The number of the outlet that the sender stands in line at, and whether inside its cycle.
    fn standing(&self) -> Option<(usize, bool)>;
    /// The number of an outlet whose outbox is not empty.
    fn holding(&self) -> Option<usize>;
    fn resume(
        &mut self,
        at: usize,
        core: &Core,
        place: &Arc<Place>,
        granted: usize,
        visit: &mut Visit,
    );
    fn give_up(&mut self, core: &Core, place: &Place, effects: &mut Effects);
}

impl dyn AnyBundle {
    #[inline(always)]
    pub(super) fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl<T: Send + 'static> AnyBundle for Bundle<T> {
    fn standing(&self) -> Option<(usize, bool)> {
        let mut outlets = self.outlets.iter().enumerate();
        outlets.find_map(|(at, outlet)| Some((at, outlet.standing()?.inside)))
    }

    fn holding(&self) -> Option<usize> {
        self.outlets.iter().position(Outlet::holds)
    }

    fn resume(
        &mut self,
        at: usize,
        core: &Core,
        place: &Arc<Place>,
        granted: usize,
        visit: &mut Visit,
    ) {
        self.outlets[at].resume(core, place, granted, visit);
    }

    fn give_up(&mut self, core: &Core, place: &Place, effects: &mut Effects) {
        self.outlets.iter_mut().for_each(|outlet| outlet.give_up(core, place, effects));
    }
}
