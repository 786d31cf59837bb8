//! One ready queue and colors: stages of one color run one after the other, stages of different
//! colors side by side, so that those that share something need no lock.
//!
//! Zeldovich colors events as the program says; here the plan colors stages. Without colors each
//! stage has one of its own, as Gordon has it: no stage ever runs twice at once. A keyed stage then has
//! none: its keys are colors of its events already, and a color of the stage would have one key hold up all.

use std::collections::{BTreeMap, BTreeSet};

use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use crate::control::{PolicyControl, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// One queue; stages of one color run serially.
#[derive(Clone, Debug)]
pub struct Color {
    colors: BTreeMap<String, i64>,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "color",
        aliases: &["colors"],
        about: "one ready queue; stages of one color never run at once",
        cites: "Zeldovich et al., Multiprocessor Support for Event-Driven Programs, USENIX 2003; \
                on stages: Gordon, Stage scheduling for CPU-intensive servers, 2010",
        params: &[ParamSpec {
            name: "colors",
            about: "the color of each stage, any number; without any, each stage without keys has its own",
            kind: ParamKind::Stages,
            default: "",
        }],
    };
    Entry::new(offer, Color::new)
}

impl Color {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        Color { colors: validated.stages("colors") }
    }
}

impl Policy for Color {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let stages = control.stages().to_vec();
        if self.colors.is_empty() {
            control.explain("each stage without keys is a color of its own".to_owned());
            // A source runs once at a time anyway.
            let colored = stages.iter().filter(|stage| stage.has_queue() && !stage.keyed);
            for (stage, color) in colored.zip(0..) {
                control.set_color(stage.id, Some(color))?;
            }
            return Ok(());
        }
        if let Some(name) = self.colors.keys().find(|name| stages.iter().all(|s| s.name != **name))
        {
            return Err(Refused::Failed(format!(
                "`{name}` has a color, but is not in the cluster"
            )));
        }
        let shades: BTreeSet<i64> = self.colors.values().copied().collect();
        control.explain(format!("{} stages in {} colors", self.colors.len(), shades.len()));
        for stage in stages {
            let Some(said) = self.colors.get(&stage.name) else { continue };
            let color = shades.range(..said).count() as u32;
            control.set_color(stage.id, Some(color))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{Mock, Queues};
    use crate::policies::started;

    fn shop() -> Mock {
        Mock::new().source("orders").stage("check").stage("book").stage("send")
    }

    #[test]
    fn without_colors_each_stage_has_its_own() {
        let (_, mut mock) = started("color", shop());
        assert_eq!(mock.take_log(), ["set_color check 0", "set_color book 1", "set_color send 2"]);
        assert_eq!(mock.queues(), Queues::One);
    }

    #[test]
    fn a_keyed_stage_has_no_color_unless_the_plan_gives_it_one() {
        let (_, mock) = started("color", shop().keyed("book"));
        assert_eq!(
            ["check", "book", "send"].map(|name| mock.at(name).color),
            [Some(0), None, Some(1)]
        );
        let (_, mock) = started("color(colors=check=7 book=7)", shop().keyed("book"));
        assert_eq!(mock.at("book").color, Some(0));
    }

    #[test]
    fn stages_said_to_be_of_one_color_get_one_and_the_others_none() {
        let (_, mock) = started("color(colors=check=7 book=-3 orders=7)", shop());
        let color = |name| mock.at(name).color;
        assert_eq!([color("orders"), color("check"), color("book")], [Some(1), Some(1), Some(0)]);
        assert_eq!(color("send"), None);
        assert_eq!(mock.explained(), ["3 stages in 2 colors"]);
    }

    #[test]
    fn a_color_for_a_stage_of_another_cluster_is_refused() {
        let choice = Choice::new("color").with("colors", BTreeMap::from([("pack".to_owned(), 1)]));
        let mut mock = shop();
        let refused = mock.start(&mut Color::new(&choice)).unwrap_err();
        assert_eq!(refused.to_string(), "`pack` has a color, but is not in the cluster");
        assert!(mock.log().is_empty());
    }
}
