//! The closed formulas that the model is held against: mean time in the system, waiting and service, of
//! queues with Poisson arrivals at a load below 1.

/// M/M/1: one server, exponential service of mean `service`.
#[must_use]
pub fn mm1(load: f64, service: f64) -> f64 {
    service / (1.0 - load)
}

/// M/D/1: one server, service always the same (Pollaczek and Khinchine).
#[must_use]
pub fn md1(load: f64, service: f64) -> f64 {
    service + service * load / (2.0 * (1.0 - load))
}

/// M/M/c: several servers, by the formula of Erlang.
#[must_use]
pub fn mmc(servers: u32, load: f64, service: f64) -> f64 {
    let offered = load * f64::from(servers);
    // Erlang B by its recursion, which does not overflow; then C from B.
    let blocked = (1..=servers).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    service + waits * service / (f64::from(servers) * (1.0 - load))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_of_many_is_one_server() {
        for load in [0.1, 0.5, 0.9, 0.95] {
            assert!((mmc(1, load, 2.0) - mm1(load, 2.0)).abs() < 1e-12);
        }
    }

    #[test]
    fn two_servers_wait_as_the_textbook_says() {
        // M/M/2: T = s / (1 - rho^2).
        for load in [0.1_f64, 0.5, 0.9] {
            assert!((mmc(2, load, 1.0) - 1.0 / (1.0 - load * load)).abs() < 1e-12);
        }
    }

    #[test]
    fn a_fixed_service_waits_half_as_long() {
        let (fixed, chance) = (md1(0.8, 1.0) - 1.0, mm1(0.8, 1.0) - 1.0);
        assert!((fixed - chance / 2.0).abs() < 1e-12);
    }
}
