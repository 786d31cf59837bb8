//! The types of a closure are written out.
use comporta::App;

fn main() {
    let app = App::new("untyped");
    app.stage("work", |event, out| out.send(event));
}
