//! A source is an iterator, a `Source`, or a `Result` of one.
use comporta::App;

fn main() {
    let app = App::new("no-source");
    app.source("numbers", || 7u64);
}
