//! The instances of a stage are copies of it.
use comporta::{App, Cx, Ev, Out, Result, Stage};

struct Owner(Box<dyn Fn() + Send + Sync>);

impl Stage for Owner {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        (self.0)();
        out.send(*n);
        Ok(())
    }
}

fn main() {
    let app = App::new("copies");
    app.stage("owner", Owner(Box::new(|| ())));
}
