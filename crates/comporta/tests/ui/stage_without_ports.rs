//! A sink sends nothing.
use comporta::App;

fn main() {
    let app = App::new("sink");
    let one = app.sink("one", |_: u64| {});
    let two = app.sink("two", |_: u64| {});
    app.connect(one, two);
}
