//! Numbers people can read: thousands apart, rates and times with three digits and a unit.

use std::time::Duration;

/// `1,234,567`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `0`, `0.25`, `12.3`, `310 k`, `1.24 M`: so many a second, say.
pub(crate) fn amount(n: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    if n <= 0.0 || !n.is_finite() {
        return "0".to_owned();
    }
    // What would be rounded to 1000 belongs to the next unit.
    let (size, unit) = UNITS.into_iter().find(|(size, _)| n >= size * 0.999_5).unwrap_or((1.0, ""));
    format!("{}{unit}", three(n / size))
}

/// `0`, `350 ns`, `1.24 µs`, `12.3 s`, `3 min 20 s`, `2 h 05 min`.
pub(crate) fn span(time: Duration) -> String {
    const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    let seconds = time.as_secs();
    if seconds >= 3600 {
        return format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
    }
    if seconds >= 60 {
        return format!("{} min {:02} s", seconds / 60, seconds % 60);
    }
    let nanos = time.as_secs_f64() * 1e9;
    match UNITS.into_iter().find(|(size, _)| nanos >= size * 0.999_5) {
        Some((size, unit)) => format!("{} {unit}", three(nanos / size)),
        None => "0 s".to_owned(),
    }
}

/// The time that has passed, as a clock shows it: with a tenth, so that it does not change width
/// with every look.
pub(crate) fn clock(time: Duration) -> String {
    if time.as_secs() >= 60 { span(time) } else { format!("{:.1} s", time.as_secs_f64()) }
}

/// Three digits that count; none behind a point that says nothing.
fn three(n: f64) -> String {
    let places = if n >= 99.95 {
        0
    } else if n >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{n:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// `1 event`, `2 events`.
pub(crate) fn events(n: u64) -> String {
    format!("{} event{}", thousands(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let pairs = [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345, "12,345")];
        for (n, text) in pairs.into_iter().chain([(1_234_567, "1,234,567")]) {
            assert_eq!(thousands(n), text);
        }
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn amounts_have_three_digits_and_a_unit() {
        let pairs = [
            (0.0, "0"),
            (0.25, "0.25"),
            (1.0, "1"),
            (12.34, "12.3"),
            (100.4, "100"),
            (999.4, "999"),
            (999.9, "1 k"),
            (1_240.0, "1.24 k"),
            (310_000.0, "310 k"),
            (999_900.0, "1 M"),
            (1_240_000.0, "1.24 M"),
            (2.5e9, "2.5 G"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
        ];
        for (n, text) in pairs {
            assert_eq!(amount(n), text, "{n}");
        }
    }

    #[test]
    fn spans_have_the_unit_that_fits() {
        let pairs = [
            (0, "0 s"),
            (7, "7 ns"),
            (350, "350 ns"),
            (1_240, "1.24 µs"),
            (999_999, "1 ms"),
            (12_345_678, "12.3 ms"),
            (2_000_000_000, "2 s"),
            (59_940_000_000, "59.9 s"),
            (200_000_000_000, "3 min 20 s"),
            (7_500_000_000_000, "2 h 05 min"),
        ];
        for (nanos, text) in pairs {
            assert_eq!(span(Duration::from_nanos(nanos)), text, "{nanos}");
        }
        assert_eq!(clock(Duration::from_millis(12_345)), "12.3 s");
        assert_eq!(clock(Duration::from_secs(61)), "1 min 01 s");
    }
}
