//! What `policies` prints: every policy in a line, or one with its parameters and where it is from.

use std::fmt::Write as _;

use comporta_model::plan::{Offer, defaults, nearest};
use comporta_policy::Registry;

/// Every policy in a line; or, of one, all there is to know. Nothing if there is none of that name.
pub(crate) fn policies(name: Option<&str>) -> Result<String, String> {
    let offers = Registry::new().offers();
    match name {
        None => Ok(list(&offers)),
        Some(name) => match offers.iter().rev().find(|offer| offer.is_called(name)) {
            Some(offer) => Ok(details(offer)),
            None => {
                let names = offers.iter().map(|offer| offer.name);
                let near = nearest(name, names).map(|near| format!(": did you mean `{near}`?"));
                Err(format!("there is no policy `{name}`{}", near.unwrap_or_default()))
            }
        },
    }
}

fn list(offers: &[Offer]) -> String {
    let width = offers.iter().map(|offer| offer.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for offer in offers {
        let Offer { name, about, .. } = offer;
        let _ = writeln!(text, "{name:width$}  {about}{}{}", aliases(offer), default(offer));
    }
    text + "\n`policies NAME` says more of one: its parameters, where it is from.\n\
            Choose one with `--policy NAME` or `--policy \"NAME(key=value, key=value)\"`, or in a plan:\n  \
            cluster.main.policy = \"NAME\"\n  \
            cluster.main.policy = { name = \"NAME\", key = value }\n"
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
    if offer.name == defaults::POLICY { " (the default)" } else { "" }
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

    #[test]
    fn every_policy_is_listed_and_can_be_asked_for() {
        let list = policies(None).unwrap();
        for offer in Registry::new().offers() {
            assert!(list.lines().any(|line| line.starts_with(offer.name)), "{list}");
            for name in offer.aliases.iter().chain([&offer.name]) {
                assert!(policies(Some(name)).unwrap().starts_with(offer.name));
            }
        }
    }

    #[test]
    fn one_that_is_not_there_is_refused_with_the_nearest() {
        let refused = policies(Some("srtp")).unwrap_err();
        assert_eq!(refused, "there is no policy `srtp`: did you mean `srpt`?");
    }
}
