//! Colors: stages of one color never run at once, on however many threads (Zeldovich et al. 2003).
//! A token that finds its color taken waits with it; whoever gives the color back makes all that wait
//! ready again, so that none is left behind when colors change.

use std::collections::HashMap;

use crate::path::ready::Token;
use crate::sync::Mutex;

/// No color.
pub(crate) const NONE: u32 = 0;

/// The colors that are taken, and the tokens that wait for each.
#[derive(Default)]
pub(crate) struct Colors(Mutex<HashMap<u32, Vec<Token>>>);

impl Colors {
    /// Takes a color for a visit; if that is taken, the token stays here.
    #[inline]
    pub(crate) fn take(&self, color: u32, token: Token) -> Result<u32, ()> {
        if color == NONE { Ok(NONE) } else { self.take_one(color, token) }
    }

    #[cold]
    fn take_one(&self, color: u32, token: Token) -> Result<u32, ()> {
        let mut taken = self.0.lock();
        match taken.get_mut(&color) {
            Some(waiting) => {
                waiting.push(token);
                Err(())
            }
            None => {
                taken.insert(color, Vec::new());
                Ok(color)
            }
        }
    }

    /// Gives a color back; what waited for it is to be made ready.
    #[inline]
    pub(crate) fn give(&self, color: u32, ready: &mut Vec<Token>) {
        if color != NONE {
            ready.extend(self.0.lock().remove(&color).into_iter().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::ready::Task;

    #[test]
    fn who_finds_a_color_taken_waits_until_it_is_given_back() {
        let colors = Colors::default();
        let token = |stage| Token::new(stage, Task::Any);
        assert_eq!(colors.take(NONE, token(1)), Ok(NONE));
        assert_eq!(colors.take(7, token(1)), Ok(7));
        assert_eq!(colors.take(8, token(2)), Ok(8));
        assert_eq!(colors.take(7, token(3)), Err(()));
        assert_eq!(colors.take(7, token(4)), Err(()));
        let mut ready = Vec::new();
        colors.give(7, &mut ready);
        assert_eq!(ready, [token(3), token(4)]);
        assert_eq!(colors.take(7, token(3)), Ok(7));
    }
}
