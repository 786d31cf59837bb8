//! The pictures that every drawing is looked at with.

use comporta_cli::draw::{Edge, Kind, Node, Picture, Way};

/// A picture from lines such as `a -> b c` and `cache.hit -> send`. A name with `!` is a source, with `?`
/// an input; `name (x4, stateful)` gives notes and `name @main` a group.
pub(crate) fn picture(title: &str, lines: &str) -> Picture {
    let mut picture = Picture { title: title.to_owned(), ..Picture::default() };
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_once("->") {
            Some((from, to)) => {
                let (from, label) = match from.trim().split_once('.') {
                    Some((from, label)) => (from, Some(label.trim().to_owned())),
                    None => (from.trim(), None),
                };
                let (to, way) = match to.split_once('|') {
                    Some((to, "rr")) => (to, Way::RoundRobin),
                    Some((to, _)) => (to, Way::ByKey),
                    None => (to, Way::Plain),
                };
                let from = find(&mut picture, from);
                for to in to.split_whitespace() {
                    let local = to.starts_with('~');
                    let to = find(&mut picture, to.trim_start_matches('~'));
                    picture.edges.push(Edge { from, to, label: label.clone(), way, local });
                }
            }
            None => say(&mut picture, line),
        }
    }
    picture
}

/// `name @group (note, note)`, the last two optional.
fn say(picture: &mut Picture, line: &str) {
    let (line, notes) = line.split_once('(').unwrap_or((line, ""));
    let (name, group) = line.split_once('@').unwrap_or((line, ""));
    let node = find(picture, name.trim());
    let notes = notes.trim_end_matches(')').split(',').map(str::trim);
    picture.nodes[node].notes = notes.filter(|n| !n.is_empty()).map(str::to_owned).collect();
    let group = group.trim();
    if !group.is_empty() {
        let at = picture.groups.iter().position(|other| other == group).unwrap_or_else(|| {
            picture.groups.push(group.to_owned());
            picture.groups.len() - 1
        });
        picture.nodes[node].group = Some(at);
    }
}

fn find(picture: &mut Picture, name: &str) -> usize {
    let kind = match name.chars().last() {
        Some('!') => Kind::Source,
        Some('?') => Kind::Input,
        _ => Kind::Stage,
    };
    let name = name.trim_end_matches(['!', '?']);
    if let Some(at) = picture.nodes.iter().position(|node| node.name == name) {
        return at;
    }
    picture.nodes.push(Node { name: name.to_owned(), kind, notes: Vec::new(), group: None });
    picture.nodes.len() - 1
}

/// All of them, with the name of their file.
pub(crate) fn all() -> Vec<(&'static str, Picture)> {
    let chain = |n: usize| {
        let lines = (1..n).map(|i| format!("step-{}{} -> step-{i}\n", i - 1, mark(i)));
        lines.collect::<String>()
    };
    let fan: String = (1..=30).map(|i| format!("split! -> worker-{i}\n")).collect();
    // Three hundred stages: a chain with a side branch at every third.
    let large: String = (1..200)
        .map(|i| {
            let side = if i % 2 == 0 { format!("s{i} -> side{i}\n") } else { String::new() };
            format!("s{}{} -> s{i}\n{side}", i - 1, mark(i))
        })
        .collect();
    vec![
        ("one", picture("one", "alone!")),
        ("chain-3", picture("chain", &chain(3))),
        ("chain-12", picture("chain", &chain(12))),
        ("diamond", picture("diamond", "in? -> left right\nleft -> out\nright -> out")),
        ("weblog", picture("weblog", WEBLOG)),
        ("weblog-clusters", picture("weblog", &format!("{WEBLOG}{WEBLOG_CLUSTERS}"))),
        ("webserver", picture("web server", WEBSERVER)),
        ("fan-30", picture("fan", &fan)),
        ("two-parts", picture("two parts", "a! -> b\nb -> c\nx? -> y")),
        ("large", picture("large", &large)),
        ("long-names", picture("long names", LONG_NAMES)),
        ("wide-names", picture("宽字符", "源! -> 解析 過濾\n解析 -> 儲存\n過濾 -> 儲存 données")),
        ("loops", picture("loops", LOOPS)),
        ("crossed", picture("crossed", CROSSED)),
        ("orders", picture("orders", ORDERS)),
    ]
}

fn mark(i: usize) -> &'static str {
    if i == 1 { "!" } else { "" }
}

const WEBLOG: &str = "
    requests! -> window
    window -> persist correlate filter
    filter -> alarm
    window (stateful, batched 500/1s)
    correlate (x4)
    persist (x2)
";

const WEBLOG_CLUSTERS: &str = "
    requests @front
    window @front (stateful, batched 500/1s)
    filter @front
    persist @disk (x2)
    correlate @numbers (x4)
    alarm @front
";

const WEBSERVER: &str = "
    wait! -> handle
    handle -> cache
    cache.hit -> send
    cache.file -> read
    cache.script -> cgi
    read -> send
    cgi -> send
    send -> handle
";

const LONG_NAMES: &str = "
    receive-the-orders-of-all-customers-in-europe-1! -> check-the-orders-of-all-customers-in-europe
    receive-the-orders-of-all-customers-in-europe-2! -> check-the-orders-of-all-customers-in-europe
    check-the-orders-of-all-customers-in-europe -> write-the-orders-of-all-customers-in-europe
";

const LOOPS: &str = "
    seed? -> work
    work.again -> work
    work.done -> a
    a -> b
    b -> a
    b -> work
    b -> end
";

const CROSSED: &str = "
    a! -> x y
    b! -> y z
    c! -> z x
    a -> end
    x -> end
    y -> p q
    z -> p q
";

const ORDERS: &str = "
    http? -> parse
    mail! -> parse
    parse.order -> price
    parse.bad -> reject
    price -> stock-a stock-b stock-c|rr
    stock-a -> pack
    stock-b -> pack
    stock-c -> pack
    pack.ok -> ~ship
    pack.missing -> price
    ship -> log
    parse.order -> log
    reject -> log
    parse @edge (x4)
    http @edge
    mail @edge
    reject @edge
    price @core (stateful)
    stock-a @core
    stock-b @core
    stock-c @core
    pack @dock (ordered, x8)
    ship @dock
    log @dock (batched 500/1s, stateful)
";
