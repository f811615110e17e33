//! Pages, and where the next one begins.

use std::{collections::HashSet, sync::Arc};

use futures_util::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};

/// A page of results.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins, if there is one.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// The first of these items; the cursor is the key of its last.
    pub fn first(mut items: impl Iterator<Item = T>, limit: u32, key: impl Fn(&T) -> &str) -> Self {
        let page: Vec<T> = items.by_ref().take(limit as usize).collect();
        let next = items.next().and(page.last()).map(|last| Cursor::new(key(last)));
        Self { items: page, next }
    }
}

/// Where the next page begins; opaque.
///
/// A cursor that a client returned also has the names of the pages before it, so that none is listed twice. Its text alone
/// is enough to go on elsewhere: no name is missed then, but some may come again, and pages may be longer than asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    text: String,
    seen: Option<SeenNames>,
}

/// The names that a listing has returned. A cursor that is used twice has its own copy for each use.
type SeenNames = Arc<HashSet<Box<str>>>;

impl Cursor {
    /// Wraps an engine's own continuation text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), seen: None }
    }

    /// The engine's continuation text; empty where a listing begins.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The items of all pages, one after the other. A page is asked for when the one before is used up; an error is the last item.
pub(crate) fn all_items<T, E, F>(
    page: impl Fn(Option<Cursor>) -> F + Send + 'static,
) -> BoxStream<'static, Result<T, E>>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<Page<T>, E>> + Send + 'static,
{
    let pages = stream::try_unfold(Some(None), move |from: Option<Option<Cursor>>| {
        let page = from.map(&page);
        async move {
            let Some(page) = page else { return Ok(None) };
            let Page { items, next } = page.await?;
            Ok(Some((stream::iter(items.into_iter().map(Ok)), next.map(Some))))
        }
    });
    pages.try_flatten().boxed()
}

/// A listing as the client takes it from its engine, one page per step.
pub(crate) struct Listing {
    from: Option<Cursor>,
    seen: Option<SeenNames>,
}

impl Listing {
    /// Goes on at a cursor, or begins.
    pub(crate) fn at(from: Option<Cursor>) -> Self {
        match from {
            None => Self { from: None, seen: Some(SeenNames::default()) },
            Some(Cursor { text, seen }) => Self { from: (!text.is_empty()).then(|| Cursor::new(text)), seen },
        }
    }

    /// Where the engine's next page begins.
    pub(crate) fn from(&self) -> Option<Cursor> {
        self.from.clone()
    }

    /// Removes what earlier pages had, and what exceeds the limit: the next step then asks for the same page again.
    pub(crate) fn page<T>(self, mut page: Page<T>, limit: u32, name: impl Fn(&T) -> &str) -> Page<T> {
        let Some(mut seen) = self.seen else { return page };
        let names = Arc::make_mut(&mut seen);
        page.items.retain(|item| names.insert(name(item).into()));
        let excess = page.items.split_off(page.items.len().min(limit as usize));
        if !excess.is_empty() {
            for item in &excess {
                names.remove(name(item));
            }
            page.next = Some(self.from.unwrap_or_else(|| Cursor::new("")));
        }
        page.next = page.next.map(|next| Cursor { seen: Some(seen), ..next });
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one page from an engine that has the named ones on it.
    fn step(
        from: Option<Cursor>,
        raw: &[&'static str],
        next: Option<&str>,
    ) -> (Vec<&'static str>, Option<Cursor>) {
        let page = Page { items: raw.to_vec(), next: next.map(Cursor::new) };
        let page = Listing::at(from).page(page, 2, |name| name);
        (page.items, page.next)
    }

    #[test]
    fn a_name_that_an_earlier_page_had_is_left_out() {
        let (first, next) = step(None, &["a", "b"], Some("7"));
        let (second, end) = step(next, &["b", "c"], None);
        assert_eq!((first, second, end.is_none()), (vec!["a", "b"], vec!["c"], true));
    }

    #[test]
    fn what_exceeds_the_limit_comes_with_the_next_page() {
        let (first, next) = step(None, &["a", "b", "c"], None);
        let next = next.expect("there is more");
        assert_eq!((first, next.as_str()), (vec!["a", "b"], ""));
        assert!(Listing::at(Some(next.clone())).from().is_none(), "the same page again");
        // By then the store may have moved its names.
        assert_eq!(step(Some(next), &["d", "a", "c"], Some("7")).0, ["d", "c"]);
    }

    #[test]
    fn a_cursor_can_be_used_again() {
        let (_, next) = step(None, &["a"], Some("7"));
        assert_eq!(step(next.clone(), &["b"], None).0, ["b"]);
        assert_eq!(step(next, &["a", "b", "c"], None).0, ["b", "c"]);
    }

    #[test]
    fn a_text_alone_misses_nothing() {
        assert_eq!(step(Some(Cursor::new("7")), &["a", "b", "c"], None).0, ["a", "b", "c"]);
    }
}
