//! A type that is no stage.
use comporta::App;

#[derive(Clone)]
struct Work;

fn main() {
    let app = App::new("no-stage");
    app.stage("work", Work);
}
