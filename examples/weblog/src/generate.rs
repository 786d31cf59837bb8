//! A made-up access log: some thousand clients whose visits come and go, pages asked for by Zipf's
//! law, now and then a scanner that probes for what is not there or someone who tries passwords,
//! and a few lines of rubbish. The same seed gives the same log.

use std::fmt::Write;

use crate::parse::{MONTHS, date};

/// Lines begin here: Monday, 4 March 2024, midnight.
const START_MS: u64 = 1_709_510_400_000;
/// The longest time between two lines: twelve lines a second, so that a million take a day.
const GAP_MS: u64 = 160;
const CLIENTS: u64 = 20_000;
const PAGES: u64 = 2_000;
/// Visits that go on at one time.
const VISITS: usize = 256;
const ATTACKS_MAX: usize = 3;
/// One line of so many is rubbish, a request that was none, or the start of an attack.
const RUBBISH: u64 = 5_000;
const NO_REQUEST: u64 = 2_000;
const ATTACK: u64 = 30_000;

const AGENTS: [&str; 6] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:123.0) Gecko/20100101 Firefox/123.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/122.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_3) AppleWebKit/605.1.15 Version/17.3 Safari/605.1.15",
    "Mozilla/5.0 (compatible; Examplebot/2.1; +http://www.example.org/bot.html)",
    r#"Reader \"Pro\" 3.1"#,
    "curl/8.6.0",
];
const PROBED: [&str; 12] = [
    "/wp-login.php",
    "/.env",
    "/.git/config",
    "/phpmyadmin/",
    "/admin.php",
    "/xmlrpc.php",
    "/backup.zip",
    "/server-status",
    "/cgi-bin/test.cgi",
    "/vendor/phpunit/",
    "/shell.php",
    "/etc/passwd",
];
const SECTIONS: [&str; 8] = ["news", "products", "docs", "blog", "img", "static", "forum", "about"];
const RUBBISH_LINES: [&str; 5] = [
    "",
    r#"198.51.100.1 - - [04/Mar/2024:"#,
    r#"- - - "GET / HTTP/1.1" 200 12"#,
    r#"198.51.100.2 - - [04/Mar/2024:08:00:00 +0000] "GET /unfinished"#,
    r#"198.51.100.3 - - [04/Mär/2024:08:00:00 +0000] "GET / HTTP/1.1" OK -"#,
];

/// Endless lines of a log.
#[must_use]
pub fn generate(seed: u64) -> Log {
    let mut dice = Dice(seed);
    let clients = (0..CLIENTS).map(|n| address(n, &mut dice)).collect();
    let pages = (0..PAGES).map(page).collect();
    Log {
        dice,
        clients,
        pages,
        now_ms: START_MS,
        second: 0,
        stamp: String::new(),
        visits: Vec::new(),
        attacks: Vec::new(),
    }
}

/// See [`generate`].
#[derive(Debug)]
pub struct Log {
    dice: Dice,
    clients: Vec<String>,
    pages: Vec<String>,
    now_ms: u64,
    second: u64,
    stamp: String,
    visits: Vec<Visit>,
    attacks: Vec<Attack>,
}

#[derive(Debug)]
struct Visit {
    client: usize,
    agent: &'static str,
    left: u64,
}

#[derive(Debug)]
struct Attack {
    client: String,
    /// Tries passwords; else probes for what is not there.
    passwords: bool,
    left: u64,
}

impl Iterator for Log {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.tick();
        if self.dice.below(RUBBISH) == 0 {
            let choice = self.dice.below(RUBBISH_LINES.len() as u64) as usize;
            return Some(RUBBISH_LINES[choice].to_owned());
        }
        if self.dice.below(ATTACK) == 0 && self.attacks.len() < ATTACKS_MAX {
            let roll = self.dice.roll();
            let client = format!("203.0.113.{}", roll % 256);
            let left = 100 + roll / 256 % 200;
            self.attacks.push(Attack { client, passwords: roll >> 63 == 0, left });
        }
        let of = self.dice.below(4) as usize; // up to three lines in four are attacks
        Some(if of < self.attacks.len() { self.attack(of) } else { self.visit() })
    }
}

impl Log {
    fn tick(&mut self) {
        self.now_ms += self.dice.below(GAP_MS);
        let second = self.now_ms / 1_000;
        if self.second != second {
            self.second = second;
            self.stamp.clear();
            let (year, month, day) = date((second / 86_400) as i64);
            let (hour, minute, second) = (second / 3_600 % 24, second / 60 % 60, second % 60);
            let month = MONTHS[month as usize - 1];
            let stamp = &mut self.stamp;
            push(
                stamp,
                format_args!(
                    " - - [{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} +0000] \""
                ),
            );
        }
    }

    fn visit(&mut self) -> String {
        if self.visits.len() < VISITS {
            let agent = AGENTS[self.dice.below(AGENTS.len() as u64) as usize];
            let client = self.dice.below(CLIENTS) as usize;
            self.visits.push(Visit { client, agent, left: self.dice.below(30) });
        }
        let at = self.dice.below(self.visits.len() as u64) as usize;
        let Visit { client, agent, .. } = self.visits[at];
        match self.visits[at].left.checked_sub(1) {
            Some(left) => self.visits[at].left = left,
            None => drop(self.visits.swap_remove(at)),
        }
        if self.dice.below(NO_REQUEST) == 0 {
            return [&self.clients[client], &*self.stamp, "-\" 408 - \"-\" \"-\""].concat();
        }
        let roll = self.dice.roll();
        let bytes = 200 + roll % 40_000;
        let mut line = String::with_capacity(256);
        line.push_str(&self.clients[client]);
        line.push_str(&self.stamp);
        match roll >> 32 & 0x3FF {
            0..=14 => push(&mut line, format_args!("GET /old/{} HTTP/1.1\" 404 512", roll % 5_000)),
            15 => line.push_str("POST /login HTTP/1.1\" 401 381"),
            16..=24 => line.push_str("POST /login HTTP/1.1\" 302 -"),
            25..=27 => {
                push(&mut line, format_args!("GET /search?q={} HTTP/1.1\" 500 97", roll % 99));
            }
            part => {
                let page = self.dice.rank(PAGES);
                line.push_str("GET ");
                line.push_str(&self.pages[page]);
                match part {
                    28..=127 => line.push_str(" HTTP/1.1\" 304 -"),
                    _ => push(&mut line, format_args!(" HTTP/1.1\" 200 {bytes}")),
                }
            }
        }
        line.push_str(" \"-\" \"");
        line.push_str(agent);
        line.push('"');
        line
    }

    fn attack(&mut self, of: usize) -> String {
        let roll = self.dice.roll();
        let Attack { client, passwords, left } = &mut self.attacks[of];
        let mut line = [client.as_str(), self.stamp.as_str()].concat();
        if *passwords {
            let status = if roll.is_multiple_of(10) { 403 } else { 401 };
            push(
                &mut line,
                format_args!("POST /login HTTP/1.1\" {status} 381 \"-\" \"curl/8.6.0\""),
            );
        } else {
            let path = PROBED[roll as usize % PROBED.len()];
            let deep = roll >> 8 & 0x3F;
            push(&mut line, format_args!("GET /{deep}{path} HTTP/1.1\" 404 512 \"-\" \"-\""));
        }
        *left -= 1;
        if *left == 0 {
            self.attacks.swap_remove(of);
        }
        line
    }
}

fn push(line: &mut String, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("writing to a string does not fail");
}

/// One client in eight has an IPv6 address.
fn address(n: u64, dice: &mut Dice) -> String {
    let roll = dice.roll();
    match n % 8 {
        0 => format!("2001:db8:{:x}:{:x}::{:x}", roll & 0xFFFF, roll >> 16 & 0xFFFF, n),
        _ => format!("10.{}.{}.{}", roll & 0xFF, n / 256 % 256, n % 256),
    }
}

fn page(n: u64) -> String {
    let section = SECTIONS[n as usize % SECTIONS.len()];
    match n {
        0 => "/".to_owned(),
        _ if n.is_multiple_of(3) => format!("/{section}/{n}?page={}", n % 7),
        _ => format!("/{section}/{n}.html"),
    }
}

/// Splitmix64: small, and good enough for a log.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    /// A rank from 0, chosen by Zipf's law: the shares up to r add up to about ln(r + 2).
    fn rank(&mut self, ranks: u64) -> usize {
        let uniform = (self.roll() >> 11) as f64 / (1u64 << 53) as f64;
        (ranks as f64).powf(uniform) as usize - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn one_seed_gives_one_log_and_another_seed_another() {
        let log = |seed| generate(seed).take(100).collect::<Vec<_>>();
        assert_eq!(log(1), log(1));
        assert_ne!(log(1), log(2));
    }

    #[test]
    fn all_but_the_rubbish_can_be_read_and_time_never_goes_back() {
        let mut last = 0;
        let (mut good, mut rubbish, mut missing, mut denied) = (0, 0, 0, 0);
        for text in generate(1).take(50_000) {
            match parse::line(&text) {
                None => {
                    assert!(RUBBISH_LINES.contains(&&*text), "{text}");
                    rubbish += 1;
                }
                Some(line) => {
                    assert!(line.time >= last, "{text}");
                    last = line.time;
                    good += 1;
                    missing += u32::from(line.status == 404);
                    denied += u32::from(line.status == 401);
                }
            }
        }
        assert!(good > 49_900 && rubbish > 0 && missing > 500 && denied > 20);
    }
}
