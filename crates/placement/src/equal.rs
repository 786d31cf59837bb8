//! Comparing what was measured. Sums of the same numbers in another order differ in the last digits, and a
//! decision must not hang on those: amounts that differ by less than `SHARE` of the larger are equal.

const SHARE: f64 = 1e-9;

/// Returns `true` if `a` is greater than `b`, by more than the last digits.
pub(crate) fn is_more(a: f64, b: f64) -> bool {
    a > b && !is_equal(a, b)
}

/// Returns `true` if the two differ in the last digits at most.
pub(crate) fn is_equal(a: f64, b: f64) -> bool {
    // Two infinities are equal, and have no difference.
    a == b || (a - b).abs() <= SHARE * a.abs().max(b.abs()) && a.is_finite() && b.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_in_another_order_are_equal_and_neither_is_more() {
        let (a, b) = (0.1 + 0.2, 0.3);
        assert!(a != b && is_equal(a, b) && !is_more(a, b) && !is_more(b, a));
        assert!(is_more(0.300_001, 0.3) && !is_more(0.3, 0.300_001));
    }

    #[test]
    fn infinities_are_equal_and_more_than_all_else() {
        let most = f64::INFINITY;
        assert!(is_equal(most, most) && !is_more(most, most));
        assert!(!is_equal(most, 1e300) && is_more(most, 1e300));
        assert!(is_equal(0.0, 0.0) && !is_equal(0.0, 1e-12) && is_more(1e-12, 0.0));
    }
}
