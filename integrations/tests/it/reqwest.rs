//! reqwest's client, as a resource that all handlers share.

use std::time::Duration;

use comporta::{App, Plan, Reason};

use crate::hyper::server;
use crate::program::{all_come_through, waiting};

#[test]
fn a_client_that_handlers_share() {
    let (server, address) = server();
    let app = App::new("asking");
    let client =
        app.resource("client", || Ok(::reqwest::Client::builder().no_proxy().build()?), drop);
    let asking = waiting(app, 500, 50, move |n| {
        let client = client.clone();
        async move {
            let asked = client.get().get(format!("http://{address}/{n}")).send().await?;
            Ok(asked.error_for_status()?.text().await?.parse()?)
        }
    });
    all_come_through(asking, 500);
    let _ = server.stop();
}

#[test]
fn a_stage_has_a_time_limit_and_so_has_its_client() {
    // It accepts connections, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let ms = Duration::from_millis;
    for (of_the_stage, of_the_client) in [(ms(20), ms(20_000)), (ms(20_000), ms(20))] {
        let client =
            ::reqwest::Client::builder().no_proxy().timeout(of_the_client).build().unwrap();
        let app = App::new("patient");
        let numbers = app.source("numbers", || 0..5_u64);
        let url = url.clone();
        let ask = app.sink_async("ask", move |_: u64| {
            let asked = client.get(&url).send();
            async move { asked.await.map(drop).map_err(comporta::Error::from) }
        });
        app.connect(numbers, ask);
        let plan = Plan::new().stage("ask", |ask| ask.instances(5).timeout(of_the_stage));
        let summary = crate::program::ends(app.start(&plan).unwrap());
        assert_eq!(summary.snapshot.stage("ask").unwrap().counts.failed, 5, "{summary}");
        let late = |reason: &Reason| matches!(reason, Reason::TimedOut(_));
        let reasons = &summary.failures[0].reasons;
        assert_eq!(reasons.iter().all(|(reason, _)| late(reason)), of_the_stage < of_the_client);
    }
}
