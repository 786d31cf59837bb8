//! The signal: by how much the latency of a replica grew over the last period (section 3.2.3).
//!
//! `g_i = l_i - l_(i-1)` where `l_i > l_(i-1) * (1 + d)`, else 0; `s = (g_2 + … + g_n) / l_1`.
//! The document prints `s` of {20, 30, 20} as 0.66 where its own equation 3.3 has 10/20: that is 0.5.
//!
//! Three cases are left open there. A growth of exactly `d` is none, also where rounding makes it more. A first latency of zero makes `s` infinite if anything grew: such a replica
//! comes first. A latency that is no number, or negative, was not measured, and is left out.

use crate::equal::is_more;

/// The metric `s` of latencies in the order in which they were reported.
///
/// ```
/// use comporta_placement::worsening::worsening;
///
/// assert_eq!(worsening(&[5.0, 5.0, 10.0], 0.25), 1.0);
/// assert_eq!(worsening(&[20.0, 30.0, 20.0], 0.75), 0.0);
/// ```
#[must_use]
pub fn worsening(latencies: &[f64], sensitivity: f64) -> f64 {
    let mut measured = latencies.iter().copied().filter(|l| l.is_finite() && *l >= 0.0);
    let Some(first) = measured.next() else { return 0.0 };
    let (mut before, mut grown) = (first, 0.0);
    for latency in measured {
        if is_more(latency, before * (1.0 + sensitivity)) {
            grown += latency - before;
        }
        before = latency;
    }
    if grown > 0.0 { grown / first } else { 0.0 }
}

/// The latency that a control message reports: the arithmetic mean of the period (equation 3.1).
/// `None` of nothing.
#[must_use]
pub fn mean(latencies: &[f64]) -> Option<f64> {
    (!latencies.is_empty()).then(|| latencies.iter().sum::<f64>() / latencies.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_mean_is_15() {
        assert_eq!(mean(&[10.0, 15.0, 20.0, 10.0, 20.0]), Some(15.0));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn the_documents_examples_are_083_1_and_05_where_it_misprints_08_and_066() {
        assert_eq!(worsening(&[12.0, 5.0, 15.0], 0.25), 10.0 / 12.0);
        assert_eq!(worsening(&[5.0, 5.0, 10.0], 0.25), 1.0);
        assert_eq!(worsening(&[20.0, 30.0, 20.0], 0.25), 0.5);
    }

    #[test]
    fn a_growth_below_the_sensitivity_does_not_count() {
        assert_eq!(worsening(&[20.0, 30.0, 20.0], 0.75), 0.0);
        // At the edge it does not either: the document asks for more than d.
        assert_eq!(worsening(&[20.0, 30.0], 0.5), 0.0);
        assert_eq!(worsening(&[20.0, 30.1], 0.5), (30.1 - 20.0) / 20.0);
        // 0.7 * 1.5 is a little less than 1.05 in binary.
        assert_eq!(worsening(&[0.7, 1.05], 0.5), 0.0);
    }

    #[test]
    fn growth_after_a_first_latency_of_zero_is_without_bound() {
        assert_eq!(worsening(&[0.0, 3.0], 0.25), f64::INFINITY);
        assert_eq!(worsening(&[0.0, 0.0], 0.25), 0.0);
        assert_eq!(worsening(&[0.0], 0.25), 0.0);
    }

    #[test]
    fn nothing_measured_is_no_growth() {
        assert_eq!(worsening(&[], 0.25), 0.0);
        assert_eq!(worsening(&[7.0], 0.25), 0.0);
        assert_eq!(worsening(&[f64::NAN, 4.0, -3_600_000.0, 4.0, f64::INFINITY], 0.25), 0.0);
    }

    #[test]
    fn growth_is_summed_step_by_step_and_falls_do_not_count_against_it() {
        assert_eq!(worsening(&[10.0, 20.0, 10.0, 30.0], 0.25), 3.0);
    }
}
