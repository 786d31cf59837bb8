//! Durations as plans and flags write them: `50ms`, `1.5s`, `1h 30m`. What [`show_duration`] writes,
//! [`parse_duration`] reads back as the same time.

use std::time::Duration;

/// The units, longest first: nanoseconds, how a unit is shown (none: it is only read), its other names.
const UNITS: [(u128, Option<&str>, &[&str]); 10] = [
    (31_557_600 * SECOND, None, &["y", "yr", "yrs", "year", "years"]), // 365.25 days
    (2_630_016 * SECOND, None, &["M", "month", "months"]),             // 30.44 days
    (7 * DAY, None, &["w", "wk", "wks", "week", "weeks"]),
    (DAY, Some("d"), &["day", "days"]),
    (3600 * SECOND, Some("h"), &["hr", "hrs", "hour", "hours"]),
    (60 * SECOND, Some("m"), &["min", "mins", "minute", "minutes"]),
    (SECOND, Some("s"), &["sec", "secs", "second", "seconds"]),
    (1_000_000, Some("ms"), &["msec", "millis", "millisecond", "milliseconds"]),
    (1_000, Some("us"), &["µs", "usec", "micros", "microsecond", "microseconds"]),
    (1, Some("ns"), &["nsec", "nanos", "nanosecond", "nanoseconds"]),
];
const SECOND: u128 = 1_000_000_000;
const DAY: u128 = 86_400 * SECOND;
/// Digits behind the point: more than any unit has nanoseconds.
const FRACTION_MAX: usize = 18;

/// Reads a duration: numbers with units, as in `1h 30m`. `0` needs no unit. Returns `None` if the text is not a
/// duration, or one that is too long for [`Duration`].
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut nanos) = (text.trim(), 0_u128);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (whole, fraction);
        (whole, rest) = take(rest, |c| c.is_ascii_digit());
        (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => take(rest, |c| c.is_ascii_digit()),
            None => ("0", rest),
        };
        let unit;
        (unit, rest) = take(rest.trim_start(), |c| c.is_ascii_alphabetic() || c == 'µ');
        rest = rest.trim_start();
        if fraction.is_empty() || fraction.len() > FRACTION_MAX {
            return None;
        }
        let unit =
            UNITS.iter().find(|(_, shown, names)| *shown == Some(unit) || names.contains(&unit))?.0;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let part = unit.checked_mul(fraction.parse().ok()?)? / scale;
        nanos = nanos.checked_add(unit.checked_mul(whole.parse().ok()?)?)?.checked_add(part)?;
    }
    let seconds = u64::try_from(nanos / SECOND).ok()?;
    Some(Duration::new(seconds, u32::try_from(nanos % SECOND).ok()?))
}

/// Splits the characters off with which a text begins and for which `is` returns `true`.
fn take(text: &str, is: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !is(c)).unwrap_or(text.len()))
}

/// Returns a duration as plans write it, as in `1h 30m`.
#[must_use]
pub fn show_duration(time: Duration) -> String {
    let (mut left, mut parts) = (time.as_nanos(), Vec::new());
    for (unit, shown, _) in UNITS {
        if let Some(shown) = shown
            && left >= unit
        {
            parts.push(format!("{}{shown}", left / unit));
            left %= unit;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_in_every_unit_with_fractions_and_without_blanks() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let read = [
            ("500ms", ms(500)),
            ("1.5s", ms(1_500)),
            (" 1h 30m ", ms(5_400_000)),
            ("1h30m", ms(5_400_000)),
            ("2 days", ms(2 * 86_400_000)),
            ("1w", ms(7 * 86_400_000)),
            ("3µs", Some(Duration::from_micros(3))),
            ("0", ms(0)),
            ("0s", ms(0)),
        ];
        for (text, time) in read {
            assert_eq!(parse_duration(text), time, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        let wrong = ["", " ", "1", "s", "1x", "-1s", "1.s", ".5s", "1 2s", "1s,", "1e3s", "∞"];
        let long = ["99999999999999999999y", "0.1234567890123456789s", "18446744073709551616s"];
        for text in wrong.into_iter().chain(long) {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
        assert_eq!(parse_duration("18446744073709551615s"), Some(Duration::from_secs(u64::MAX)));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(seconds: u64, nanos in 0..1_000_000_000_u32) {
            let time = Duration::new(seconds, nanos);
            prop_assert_eq!(parse_duration(&show_duration(time)), Some(time));
            let short = Duration::from_nanos(u64::from(nanos));
            prop_assert_eq!(parse_duration(&show_duration(short)), Some(short));
        }
    }
}
