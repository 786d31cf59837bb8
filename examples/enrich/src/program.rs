//! The program: visits ─▶ locate ─▶ count ─▶ show. Nothing here says how many visits are located at once, how long
//! one may take, or how often it is tried: that stands in the plan (`enrich.toml`).

use std::collections::BTreeMap;

use comporta::{
    App, AsyncCx, AsyncStage, Cx, Emissions, Error, Ev, Out, Outcome, Resource, Result, Stage,
};
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::directory::{Directory, Http};
use crate::pace::Pace;
use crate::service::{Faults, Service};
use crate::visits::Visit;

/// What the plan says in its section `[app]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// The most questions that the directory is asked in a second.
    pub(crate) rate: f64,
    /// The most answers that are kept.
    pub(crate) cache: usize,
}

impl Limits {
    /// # Errors
    /// A limit that lets nothing through.
    pub(crate) fn check(&self) -> Result {
        if !(self.rate > 0.0 && self.rate.is_finite()) || self.cache == 0 {
            return Err(Error::msg("`rate` and `cache` in [app] must be greater than 0"));
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { rate: 800.0, cache: 100_000 }
    }
}

/// A visit, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Located {
    pub(crate) country: String,
    pub(crate) bytes: u64,
}

/// Asks for the country of each visit, unless it is known.
struct Locate {
    cache: Resource<Cache>,
    directory: Resource<Box<dyn Directory>>,
    pace: Pace,
}

impl AsyncStage for Locate {
    type In = Visit;
    type Ports = Out<Located>;

    async fn handle(
        &self,
        visit: Visit,
        out: &mut Emissions<Out<Located>>,
        cx: &AsyncCx,
    ) -> Result {
        let ask = async {
            self.pace.turn(cx).await;
            self.directory.get().country(visit.address).await
        };
        let country = self.cache.get().get(visit.address, ask).await?;
        out.send(Located { country, bytes: visit.bytes });
        Ok(())
    }
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Line {
    Country { name: String, visits: u64, bytes: u64 },
    Cache { asked: u64, hits: u64 },
}

/// Adds visits up by country, and sends the sums after the last.
#[derive(Clone)]
struct Count {
    sums: BTreeMap<String, (u64, u64)>,
    cache: Resource<Cache>,
}

impl Stage for Count {
    type In = Located;
    type Ports = Out<Line>;

    fn handle(&mut self, visit: Ev<'_, Located>, _: &mut Out<Line>, _: &Cx) -> Result {
        let Located { country, bytes } = visit.take();
        let (visits, sum) = self.sums.entry(country).or_default();
        *visits += 1;
        *sum += bytes;
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<Line>, _: &Cx) -> Result {
        for (name, (visits, bytes)) in std::mem::take(&mut self.sums) {
            out.send(Line::Country { name, visits, bytes });
        }
        let (asked, hits) = self.cache.get().asked_and_hits();
        out.send(Line::Cache { asked, hits });
        Ok(())
    }
}

/// Joins the stages. The service is opened before whoever asks it, and closed after.
pub(crate) fn app<R: Outcome + 'static>(
    visits: impl Iterator<Item = Visit> + Send + 'static,
    limits: &Limits,
    faults: Faults,
    show: impl FnMut(Line) -> R + Clone + Send + Sync + 'static,
) -> App {
    let app = App::new("enrich");
    let most = limits.cache;
    let cache = app.resource("cache", move || Ok(Cache::new(most)), drop);
    let service = app.resource("service", move || Ok(Service::start(faults)?), Service::stop);
    let directory = app.resource(
        "directory",
        move || Ok(Box::new(Http::new(service.get().address)) as Box<dyn Directory>),
        drop,
    );
    let pace = Pace::per_second(limits.rate);
    let visits = app.source("visits", move || visits);
    let locate = app.stage("locate", Locate { cache: cache.clone(), directory, pace });
    let count = app.stage("count", Count { sums: BTreeMap::new(), cache }).stateful();
    let show = app.sink("show", show).stateful();
    app.connect(visits, locate);
    app.connect(locate, count);
    app.connect(count, show);
    app
}
