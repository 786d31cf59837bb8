//! `connect` asks for events that can be copied and serialised; `connect_local` does not.
use comporta::App;

struct Socket;

fn main() {
    let app = App::new("sockets");
    let sockets = app.source("sockets", || std::iter::once(Socket));
    let sink = app.sink("sink", |_: Socket| {});
    app.connect(sockets, sink);
}
