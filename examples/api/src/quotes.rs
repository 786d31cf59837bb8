//! The graph: quotes ─▶ price ─▶ discount ─▶ quotes-replies. It knows nothing of HTTP, nor of how many requests there
//! are at once: that stands in the plan.

use std::pin::Pin;
use std::time::Duration;

use comporta::{App, AsyncCx, AsyncStage, Client, Emissions, Out, Resource, Result};
use serde::{Deserialize, Serialize};

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What.
    pub item: String,
    /// How many.
    pub quantity: u64,
}

/// The reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// What it costs.
    Quote(Quote),
    /// The supplier does not have it.
    NoSuchItem,
}

/// What an order costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// What was ordered.
    pub order: Order,
    /// All of it together.
    pub cents: u64,
}

/// A price that is on its way.
pub type Price<'a> = Pin<Box<dyn Future<Output = Result<Option<u64>>> + Send + 'a>>;

/// Knows what one of an item costs, in cents.
pub trait Supplier: Send + Sync {
    /// The price of one, if it has the item.
    fn price<'a>(&'a self, item: &'a str, cx: &'a AsyncCx) -> Price<'a>;
}

/// A supplier with a short list, who takes a while to look things up.
#[derive(Debug)]
pub struct Shop {
    /// How long.
    pub takes: Duration,
}

impl Supplier for Shop {
    fn price<'a>(&'a self, item: &'a str, cx: &'a AsyncCx) -> Price<'a> {
        Box::pin(async move {
            cx.sleep(self.takes).await; // stands for a socket
            Ok(match item {
                "tea" => Some(390),
                "coffee" => Some(720),
                "sugar" => Some(110),
                _ => None,
            })
        })
    }
}

/// Asks the supplier.
struct Ask(Resource<Box<dyn Supplier>>);

impl AsyncStage for Ask {
    type In = Order;
    type Ports = Out<Answer>;

    async fn handle(&self, order: Order, out: &mut Emissions<Out<Answer>>, cx: &AsyncCx) -> Result {
        let price = self.0.get().price(&order.item, cx).await?;
        out.send(match price {
            Some(price) => {
                let cents = price.saturating_mul(order.quantity);
                Answer::Quote(Quote { order, cents })
            }
            None => Answer::NoSuchItem,
        });
        Ok(())
    }
}

/// Ten or more are a tenth cheaper.
fn discount(mut answer: Answer) -> Answer {
    if let Answer::Quote(quote) = &mut answer
        && quote.order.quantity >= 10
    {
        quote.cents -= quote.cents / 10;
    }
    answer
}

/// Adds the graph to a program. The resource `supplier` is whom `price` asks.
pub fn graph(app: &App, takes: Duration) -> Client<Order, Answer> {
    let shop = move || Ok(Box::new(Shop { takes }) as Box<dyn Supplier>);
    let supplier = app.resource("supplier", shop, drop);
    let quotes = app.gateway::<Order, Answer>("quotes");
    let price = app.stage("price", Ask(supplier));
    let discount = app.map("discount", discount);
    app.connect(quotes.requests, price);
    app.connect(price, discount);
    app.connect(discount, quotes.replies);
    quotes.client
}
