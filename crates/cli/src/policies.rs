//! The output of `policies` and `admissions`: a line for each choice, or one choice with its parameters
//! and its source.

use std::fmt::Write as _;

use comporta_model::plan::{Catalogue, Offer, defaults, nearest};
use comporta_policy::admission;

const POLICIES: &str = "
`policies NAME` describes one, with its parameters and its source.
Choose one with `--policy NAME` or `--policy \"NAME(key=value, key=value)\"`, or in a plan:
  cluster.main.policy = \"NAME\"
  cluster.main.policy = { name = \"NAME\", key = value }
";

const ADMISSIONS: &str = "
`admissions NAME` describes one, with its parameters and its source.
Choose one for the queue of a stage in a plan, or with `--set`:
  stage.STAGE.admission = \"NAME\"
  stage.STAGE.admission = { name = \"NAME\", key = value }
";

/// A line for each policy; or the description of one.
pub(crate) fn policies(catalogue: &Catalogue, name: Option<&str>) -> Result<String, String> {
    told("policy", &catalogue.policies, name, POLICIES)
}

/// The same of admission controllers.
pub(crate) fn admissions(catalogue: &Catalogue, name: Option<&str>) -> Result<String, String> {
    told("admission controller", &catalogue.admissions, name, ADMISSIONS)
}

fn told(what: &str, offers: &[Offer], name: Option<&str>, how: &str) -> Result<String, String> {
    let Some(name) = name else { return Ok(list(offers) + how) };
    match offers.iter().rev().find(|offer| offer.is_called(name)) {
        Some(offer) => Ok(details(offer)),
        None => {
            let names = offers.iter().map(|offer| offer.name);
            let near = nearest(name, names).map(|near| format!(": did you mean `{near}`?"));
            Err(format!("there is no {what} `{name}`{}", near.unwrap_or_default()))
        }
    }
}

fn list(offers: &[Offer]) -> String {
    let width = offers.iter().map(|offer| offer.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for offer in offers {
        let Offer { name, about, .. } = offer;
        let _ = writeln!(text, "{name:width$}  {about}{}{}", aliases(offer), default(offer));
    }
    text
}

fn aliases(offer: &Offer) -> String {
    let others: Vec<&str> =
        offer.aliases.iter().copied().filter(|name| *name != "default").collect();
    match others.as_slice() {
        [] => String::new(),
        others => format!("; also called {}", others.join(", ")),
    }
}

fn default(offer: &Offer) -> &'static str {
    if [defaults::POLICY, admission::NONE].contains(&offer.name) { " (the default)" } else { "" }
}

fn details(offer: &Offer) -> String {
    let Offer { name, about, cites, params, .. } = offer;
    let mut text = format!("{name}: {about}{}{}\n{cites}\n", aliases(offer), default(offer));
    let width = params.iter().map(|param| param.name.len()).max().unwrap_or(0);
    text += if params.is_empty() { "\nIt has no parameters.\n" } else { "\nParameters:\n" };
    for param in *params {
        let said = if param.default.is_empty() { "none" } else { param.default };
        let expected = param.kind.expected();
        let _ = writeln!(
            text,
            "  {:width$}  {}; {expected} [default: {said}]",
            param.name, param.about
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use comporta_runtime::App;

    fn library() -> Catalogue {
        App::new("").catalogue()
    }

    type Told = fn(&Catalogue, Option<&str>) -> Result<String, String>;

    #[test]
    fn everything_there_is_to_choose_is_listed_and_can_be_asked_for() {
        let library = library();
        let both: [(Told, &[Offer]); 2] =
            [(policies, &library.policies), (admissions, &library.admissions)];
        for (told, offers) in both {
            let list = told(&library, None).unwrap();
            for offer in offers {
                assert!(list.lines().any(|line| line.starts_with(offer.name)), "{list}");
                for name in offer.aliases.iter().chain([&offer.name]) {
                    assert!(told(&library, Some(name)).unwrap().starts_with(offer.name));
                }
            }
        }
    }

    #[test]
    fn one_that_is_not_there_is_refused_with_the_nearest() {
        let refused = policies(&library(), Some("srtp")).unwrap_err();
        assert_eq!(refused, "there is no policy `srtp`: did you mean `srpt`?");
        let refused = admissions(&library(), Some("codle")).unwrap_err();
        assert_eq!(refused, "there is no admission controller `codle`: did you mean `codel`?");
    }
}
