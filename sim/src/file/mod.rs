//! Scenarios in TOML. Nodes and operators are written in groups: `count = 13` makes thirteen alike, called `name1` to
//! `name13`.
//!
//! 1. `mistakes`: what is wrong, with file, line, column and the nearest valid name.
//! 2. `fields`: values that know where they stand; every key is asked for once, what is left is a mistake.
//! 3. `groups`: groups become nodes and operators.

mod mistakes;
mod fields;
mod groups;

pub use mistakes::{Mistake, Mistakes};

use comporta_placement::{Choice, Registry};

use self::fields::Fields;
use self::groups::Groups;
use crate::scenario::Scenario;

/// Reads a scenario. `name` is what the file is called in messages; `strategies` are those that it may choose from.
///
/// # Errors
/// Everything that is wrong with it, not only the first.
///
/// ```
/// use comporta_sim::file::read;
/// use comporta_placement::Registry;
///
/// let text = "
/// duration = '60s'
/// [nodes.n]
/// [operators.source]
/// on = 'n'
/// rate = 100
/// [operators.worker]
/// on = 'n'
/// from = 'sorce'
/// cots = '1ms'
/// ";
/// let message = read("line.toml", text, &Registry::new()).unwrap_err().to_string();
/// assert!(message.contains("line.toml:9:8") && message.contains("did you mean `source`?"), "{message}");
/// assert!(message.contains("line.toml:10:1") && message.contains("did you mean `cost`?"), "{message}");
/// ```
pub fn read(name: &str, text: &str, strategies: &Registry) -> Result<Scenario, Mistakes> {
    let mut mistakes = Mistakes::new(name, text);
    let (scenario, groups) = scenario(name, text, strategies, &mut mistakes);
    if mistakes.is_empty() {
        // What single values cannot show: how they fit together.
        for fault in scenario.check() {
            mistakes.add(fault.to_string(), groups.place(&fault.what));
        }
    }
    if mistakes.is_empty() { Ok(scenario) } else { Err(mistakes) }
}

fn scenario(
    name: &str,
    text: &str,
    strategies: &Registry,
    mistakes: &mut Mistakes,
) -> (Scenario, Groups) {
    let (document, errors) = toml::de::DeTable::parse_recoverable(text);
    for error in errors {
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        mistakes.add(format!("this is not TOML: {message}"), error.span());
    }
    let stem = std::path::Path::new(name).file_stem().map(|stem| stem.to_string_lossy());
    let mut scenario = Scenario::new(stem.unwrap_or_default());
    let mut top = Fields::new("a scenario", document.get_ref(), 0..0);
    if let Some(name) = top.text("name", mistakes) {
        scenario.name = name.0;
    }
    let times: [(&str, &mut f64); 6] = [
        ("duration", &mut scenario.duration),
        ("warm_up", &mut scenario.warm_up),
        ("network_latency", &mut scenario.network_latency),
        ("period", &mut scenario.period),
        ("create", &mut scenario.create),
        ("boot", &mut scenario.boot),
    ];
    for (key, place) in times {
        top.time(key, place, mistakes);
    }
    if let Some(seed) = top.count("seed", 0, u32::MAX as usize, mistakes) {
        scenario.seed = seed as u64;
    }
    if let Some((choice, at)) = top.text("strategy", mistakes) {
        scenario.strategy = Choice::from(choice.as_str());
        if let Err(unknown) = strategies.make(&scenario.strategy, 0) {
            mistakes.add(unknown.to_string(), Some(at));
        }
    }
    let nodes = top.tables("nodes", mistakes);
    let operators = top.tables("operators", mistakes);
    top.finish(mistakes);
    let groups = groups::fill(&mut scenario, nodes, operators, mistakes);
    (scenario, groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Window;

    const GOOD: &str = r#"
        name = "two stages"
        duration = "2m"
        strategy = "adaptive(d=0.5)"
        seed = 7
        [nodes.ends]
        reserved = true
        [nodes.n]
        count = 3
        cores = 2
        memory = "4GB"
        [operators.source]
        count = 4
        on = "ends"
        rate = { levels = [50, 550], period = "60s", ramp = "10s" }
        [operators.worker]
        count = 4
        on = "n"
        replicas = 2
        from = "source"
        cost = "1.5ms"
        window = { size = 20, slide = 5 }
        [operators.sink]
        on = "ends"
        from = "worker"
    "#;

    fn mistakes(text: &str) -> String {
        match read("s.toml", text, &Registry::new()) {
            Ok(_) => "good".to_owned(),
            Err(all) => all.to_string(),
        }
    }

    #[test]
    fn groups_become_nodes_and_operators() {
        let scenario = read("s.toml", GOOD, &Registry::new()).unwrap();
        assert_eq!((scenario.duration, scenario.seed), (120.0, 7));
        let names: Vec<&str> = scenario.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["ends", "n1", "n2", "n3"]);
        assert_eq!((scenario.nodes[1].cores, scenario.nodes[1].memory), (2, 4e9));
        assert_eq!(scenario.operators.len(), 9);
        let worker = &scenario.operators[5];
        assert_eq!((worker.name.as_str(), &worker.inputs), ("worker2", &vec![1]));
        assert_eq!(worker.nodes, [2, 3], "replicas go round");
        assert_eq!(scenario.operators[7].nodes, [1, 3], "further away in the next round");
        assert_eq!((worker.cost, worker.window), (0.0015, Some(Window { size: 20, slide: 5 })));
        assert_eq!(scenario.operators[8].inputs, [4, 5, 6, 7], "one sink takes from all");
        assert_eq!(scenario.operators[0].rates.as_ref().unwrap().at(65.0), 300.0);
    }

    #[test]
    fn a_mistake_names_file_line_column_and_the_nearest() {
        let wrong = |from: &str, to: &str| mistakes(&GOOD.replace(from, to));
        for (from, to, place, near) in [
            ("duration =", "duraton =", "s.toml:3:9", "`duration`"),
            ("cores = 2", "core = 2", "s.toml:10:9", "`cores`"),
            ("from = \"worker\"", "from = \"wrker\"", "s.toml:25:16", "`worker`"),
            ("on = \"n\"", "on = \"end\"", "s.toml:18:14", "`ends`"),
            ("adaptive(d=0.5)", "adptive", "s.toml:4:20", "`adaptive`"),
            ("adaptive(d=0.5)", "adaptive(l_mog=1)", "s.toml:4:20", "`l_mig`"),
            ("slide = 5", "slid = 5", "s.toml:22:31", "`slide`"),
            ("levels", "levls", "s.toml:15:18", "`levels`"),
            ("cores = 2", "policy = 'chort'", "s.toml:10:18", "`cohort`"),
        ] {
            let message = wrong(from, to);
            assert!(message.contains(place) && message.contains(near), "{to}:\n{message}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_reported_with_what_was_expected() {
        let wrong = |from: &str, to: &str| mistakes(&GOOD.replace(from, to));
        for (from, to, expected) in [
            ("\"2m\"", "2", "a duration such as"),
            ("\"2m\"", "\"2 moons\"", "a duration such as"),
            ("count = 3", "count = 0", "from 1 to"),
            ("count = 3", "count = 2.5", "a whole number"),
            ("\"4GB\"", "\"4 much\"", "bytes such as"),
            ("reserved = true", "reserved = 1", "true or false"),
            ("levels = [50, 550]", "levels = []", "at least one number"),
            ("levels = [50, 550]", "levels = [50, -1]", "not negative"),
            ("replicas = 2", "replicas = 4", "on 3 nodes"),
            ("slide = 5", "slide = 50", "as many events as it holds"),
            ("levels = [50, 550], period = \"60s\"", "low = 1, share = 7", "from 0 to 1"),
            ("period = \"60s\", ramp = \"10s\"", "period = \"1us\"", "at least 100ms"),
            ("cores = 2", "policy = \"seda\"", "a node of the model has not"),
            ("[nodes.n]", "[nodes.n", "not TOML"),
        ] {
            let message = wrong(from, to);
            assert!(message.contains(expected), "{to}:\n{message}");
        }
    }

    #[test]
    fn a_clock_may_be_behind_or_slow_but_not_ahead_and_behind() {
        let with = |keys: &str| read("s.toml", &GOOD.replace("cores = 2", keys), &Registry::new());
        let clock = |keys: &str| {
            let node = &with(keys).unwrap().nodes[1];
            (node.clock_ahead, node.clock_rate)
        };
        assert_eq!(clock("clock_behind = '1h'"), (-3600.0, 1.0));
        assert_eq!(clock("clock_ahead = '1h'\nclock_rate = 0.9999"), (3600.0, 0.9999));
        let both = with("clock_ahead = '1h'\nclock_behind = '1h'").unwrap_err().to_string();
        assert!(both.contains("`clock_ahead` or `clock_behind`"), "{both}");
        assert_eq!(with("download = '10MB'").unwrap().nodes[1].download, Some(1e7));
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let message = mistakes(&GOOD.replace("cores", "cors").replace("cost", "cst"));
        assert!(message.contains("`cores`") && message.contains("`cost`"), "{message}");
    }

    #[test]
    fn what_does_not_fit_together_is_reported_at_its_group() {
        for (from, to, place, wrong) in [
            ("cores = 2", "background = 4", "s.toml:8:16", "others leave it some of its cores"),
            ("cores = 2", "speed = 0", "s.toml:8:16", "more than 0"),
            ("slide = 5", "slide = 50", "s.toml:16:20", "as many events as it holds"),
            ("[nodes.ends]", "[nodes.n2]\n[nodes.ends]", "s.toml:9:16", "another node has this"),
            ("[nodes.n]", "[nodes.\"a\\u001b[31m\"]\n[nodes.n]", "s.toml", "a\\u{1b}[31m"),
            ("[nodes.n]", "[nodes.\"\"]\n[nodes.n]", "s.toml:8:16", "has characters"),
        ] {
            let message = mistakes(&GOOD.replace(from, to));
            assert!(message.contains(place) && message.contains(wrong), "{to}:\n{message}");
        }
        let often = "low = 1, high = 2, period = \"100ms\"";
        let long = GOOD.replace("\"2m\"", "\"100000s\"");
        let levels = "levels = [50, 550], period = \"60s\", ramp = \"10s\"";
        assert!(mistakes(&long.replace(levels, often)).contains("changes too often"));
        assert!(mistakes("[operators.x]\non = 'n'\nrate = 1").contains("there are none"));
    }

    #[test]
    fn an_empty_file_is_reported_with_what_it_lacks() {
        assert!(mistakes("").contains("at least one node"), "{}", mistakes(""));
    }
}
