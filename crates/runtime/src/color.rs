//! Colors: stages of one color never run at once, on however many threads (Zeldovich et al. 2003).
//! A token that finds its color taken waits with it; whoever gives the color back makes all that wait
//! ready again, so that none is left behind when colors change.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::path::ready::Token;
use crate::sync::Mutex;

/// The colors that are taken, and the tokens that wait for each.
#[derive(Default)]
pub(crate) struct Colors(Mutex<HashMap<NonZeroU32, Vec<Token>>>);

impl Colors {
    /// Takes a color, if there is one, for a visit; if that is taken, the token stays here.
    #[inline]
    pub(crate) fn take(
        &self,
        color: Option<NonZeroU32>,
        token: Token,
    ) -> Result<Option<NonZeroU32>, ()> {
        color.map(|color| self.take_one(color, token)).transpose()
    }

    #[cold]
    fn take_one(&self, color: NonZeroU32, token: Token) -> Result<NonZeroU32, ()> {
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
    pub(crate) fn give(&self, color: Option<NonZeroU32>, ready: &mut Vec<Token>) {
        if let Some(color) = color {
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
        let [seven, eight] = [7, 8].map(NonZeroU32::new);
        assert_eq!(colors.take(None, token(1)), Ok(None));
        assert_eq!(colors.take(seven, token(1)), Ok(seven));
        assert_eq!(colors.take(eight, token(2)), Ok(eight));
        assert_eq!(colors.take(seven, token(3)), Err(()));
        assert_eq!(colors.take(seven, token(4)), Err(()));
        let mut ready = Vec::new();
        colors.give(seven, &mut ready);
        assert_eq!(ready, [token(3), token(4)]);
        assert_eq!(colors.take(seven, token(3)), Ok(seven));
    }
}
