//! "Did you mean …": the known word nearest to a mistyped one.

/// The nearest known word and the list of all, as the end of a sentence that begins with "expected".
pub(crate) fn nearest_of<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    match nearest(word, &known) {
        Some(nearest) if known.len() > 1 => format!("\"{nearest}\", the nearest of {}", known.join(", ")),
        Some(nearest) => format!("\"{nearest}\""),
        None => "none: nothing of this kind is defined".into(),
    }
}

fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // What people paste by mistake can be long; the distance of its beginning decides as well.
    let word: Vec<char> = word.chars().take(64).flat_map(char::to_lowercase).collect();
    known.iter().copied().min_by_key(|known| distance(&word, &known.chars().collect::<Vec<_>>()))
}

/// How many letters must be changed, added, removed or swapped with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        let distance =
            |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("ttl", "tll", 1), ("tlt", "ttl", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn the_nearest_word_is_named_first() {
        assert_eq!(
            nearest_of("Defualt-TTL", ["max-ttl", "default-ttl"]),
            "\"default-ttl\", the nearest of default-ttl, max-ttl"
        );
        assert_eq!(nearest_of("x", ["only"]), "\"only\"");
        assert_eq!(nearest_of("x", []), "none: nothing of this kind is defined");
    }
}
