//! One line of the combined log format, or of the common one, which lacks the last two fields:
//!
//! ```text
//! client ident user [10/Oct/2000:13:55:36 -0700] "GET /path?query HTTP/1.1" 200 2326 "referer" "agent"
//! ```
//!
//! What servers really write is taken: names and IPv6 addresses as clients, users with spaces,
//! escaped quotes, requests that are none (`"-"`, or the bytes of another protocol), `-` for no
//! bytes. A line is refused when client, time, request or status cannot be told. Nothing is copied.

/// What is told by a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// An address or a name.
    pub client: &'a str,
    /// Seconds since 1970.
    pub time: i64,
    /// `GET`, `POST`, ...; empty if the request was none.
    pub method: &'a str,
    /// What was asked for, without its query; the whole request if it was none.
    pub path: &'a str,
    /// What the server answered.
    pub status: u16,
    /// How much it sent.
    pub bytes: u64,
}

/// Reads a line.
#[must_use]
pub fn line(text: &str) -> Option<Line<'_>> {
    let (client, rest) = text.split_once(' ')?;
    let (_ident_and_user, rest) = rest.split_once('[')?;
    let (stamp, rest) = rest.split_once(']')?;
    let (request, rest) = quoted(rest.strip_prefix(" \"")?)?;
    let rest = rest.strip_prefix(' ')?;
    let (status, rest) = rest.split_once(' ')?;
    let bytes = rest.split(' ').next()?;
    let (method, path) = asked_for(request);
    if client.is_empty() || status.len() != 3 {
        return None;
    }
    Some(Line {
        client,
        time: time(stamp)?,
        method,
        path,
        status: number(status)?.try_into().ok()?,
        bytes: if bytes == "-" { 0 } else { number(bytes)? },
    })
}

/// What stands before the closing quote, and what after it. A quote behind a backslash is text.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })?;
    Some((&text[..end], &text[end + 1..]))
}

fn asked_for(request: &str) -> (&str, &str) {
    let Some((method, rest)) = request.split_once(' ') else { return ("", request) };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return ("", request);
    }
    let target = rest.rsplit_once(" HTTP/").map_or(rest, |(target, _)| target);
    (method, target.split_once('?').map_or(target, |(path, _)| path))
}

/// `10/Oct/2000:13:55:36 -0700` as seconds since 1970.
fn time(stamp: &str) -> Option<i64> {
    let bytes = stamp.as_bytes();
    if bytes.len() != 26 || !stamp.is_ascii() {
        return None;
    }
    let marks = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
        return None;
    }
    let part = |from: usize, to: usize| Some(number(&stamp[from..to])? as i64);
    let month = MONTHS.iter().position(|month| *month == &stamp[3..6])? as i64 + 1;
    let (day, year) = (part(0, 2)?, part(7, 11)?);
    let (hour, minute, second) = (part(12, 14)?, part(15, 17)?, part(18, 20)?);
    let sign = match bytes[21] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let zone = sign * (part(22, 24)? * 3_600 + part(24, 26)? * 60);
    // 60: a leap second.
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - zone)
}

/// The names of the months in a log.
pub const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Digits only: `parse` would take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Days from 1970-01-01. Years begin in March here, so that a leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of so many days from 1970-01-01: `days` turned round.
#[must_use]
pub fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, if month < 10 { month + 3 } else { month - 9 });
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a/b.gif?x=1 HTTP/1.0" 200 2326 "http://here/" "Mozilla/4.08""#;

    #[test]
    fn a_combined_line_tells_all_its_fields() {
        let told = Line {
            client: "192.0.2.7",
            time: 971_211_336,
            method: "GET",
            path: "/a/b.gif",
            status: 200,
            bytes: 2_326,
        };
        assert_eq!(line(LINE), Some(told));
    }

    #[test]
    fn what_servers_really_write_is_taken() {
        let with = |request: &str, after: &str| {
            format!("2001:db8::7 - - [29/Feb/2024:00:00:00 +0000] \"{request}\" {after}")
        };
        let told = |text: &str| {
            let line = line(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((line.client, line.time), ("2001:db8::7", 1_709_164_800));
            (line.method.to_owned(), line.path.to_owned(), line.status, line.bytes)
        };
        let get = |path: &str, status, bytes| ("GET".to_owned(), path.to_owned(), status, bytes);
        let none = |path: &str, status| (String::new(), path.to_owned(), status, 0);
        assert_eq!(told(&with("GET / HTTP/1.1", "304 -")), get("/", 304, 0)); // common format
        assert_eq!(told(&with("-", "408 - \"-\" \"-\"")), none("-", 408));
        assert_eq!(told(&with(r"\x16\x03\x01", "400 0")), none(r"\x16\x03\x01", 400));
        assert_eq!(told(&with("", "400 0")), none("", 400));
        assert_eq!(told(&with("GET /a b HTTP/1.1", "200 5")), get("/a b", 200, 5));
        assert_eq!(told(&with("GET /old", "200 5")), get("/old", 200, 5)); // HTTP/0.9
        let escaped = r#"GET /\"quoted\"\\ HTTP/1.1"#;
        assert_eq!(told(&with(escaped, "200 5")), get(r#"/\"quoted\"\\"#, 200, 5));
        let user = LINE.replace("frank", "John Doe");
        assert_eq!(line(&user), line(LINE));
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        assert_eq!(line(""), None);
        for (from, to) in [
            ("192.0.2.7 ", " "),
            ("Oct", "Okt"),
            ("10/Oct", "1/Oct"),
            ("10/Oct", "+1/Oct"),
            ("10/Oct", "32/Oct"),
            ("13:55", "24:55"),
            ("-0700", "~0700"),
            ("]", ""),
            ("\"GET", "GET"),
            ("HTTP/1.0\"", "HTTP/1.0\\\""),
            (" 200 ", " 2OO "),
            (" 200 ", " 20 "),
            (" 200 ", " +20 "),
            ("2326", "many"),
            ("2326", "99999999999999999999"),
            (" 200 2326", " 200"),
        ] {
            let broken = LINE.replacen(from, to, 1);
            assert_ne!(broken, LINE);
            assert_eq!(line(&broken), None, "{broken}");
        }
        for end in 0..LINE.find(" \"http").unwrap() - 4 {
            assert_eq!(line(&LINE[..end]), None, "{}", &LINE[..end]);
        }
    }

    #[test]
    fn days_and_dates_are_each_other_turned_round() {
        for n in (-800_000..800_000).step_by(97).chain(-800..800) {
            let (year, month, day) = date(n);
            assert_eq!(days(year, month, day), n);
        }
        assert_eq!((date(0), date(19_782)), ((1970, 1, 1), (2024, 2, 29)));
    }
}
