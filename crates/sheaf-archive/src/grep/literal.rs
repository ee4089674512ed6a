//! Texts of which one is in each line that matches: where none is, nothing else is looked for.
use regex_syntax::hir::literal::{Extractor, Seq};
use regex_syntax::hir::{Hir, HirKind};

/// Texts that are looked for at once, at most.
const LITERALS_MAX: usize = 64;
/// A text that is shorter is everywhere.
const BYTES_MIN: usize = 2;

/// Texts of which each match has one, the best that there are; nothing if none are known.
pub(super) fn required(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    best(hir, 0)
}

fn best(hir: &Hir, depth: usize) -> Option<Vec<Vec<u8>>> {
    const DEPTH_MAX: usize = 8;
    let own = usable(Extractor::new().extract(hir));
    if depth > DEPTH_MAX {
        return own;
    }
    let within = match hir.kind() {
        HirKind::Capture(group) => best(&group.sub, depth + 1),
        // What may be missing is in no match for sure.
        HirKind::Repetition(of) if of.min > 0 => best(&of.sub, depth + 1),
        HirKind::Alternation(all) => {
            // One alternative without such a text is enough for there to be none.
            let each: Option<Vec<_>> = all.iter().map(|one| best(one, depth + 1)).collect();
            each.map(|each| each.concat()).filter(|all| all.len() <= LITERALS_MAX)
        }
        HirKind::Concat(all) => {
            // The extractor looks at beginnings alone, so each part is tried as one.
            let from = (1..all.len()).filter_map(|at| {
                usable(Extractor::new().extract(&Hir::concat(all[at..].to_vec())))
            });
            let parts = all.iter().filter_map(|one| best(one, depth + 1));
            from.chain(parts).max_by_key(|one| worth(one))
        }
        _ => None,
    };
    own.into_iter().chain(within).max_by_key(|one| worth(one))
}

/// Long texts are rare, and many are slow.
fn worth(literals: &[Vec<u8>]) -> (usize, usize) {
    let shortest = literals.iter().map(Vec::len).min().unwrap_or(0);
    (shortest.min(8), usize::MAX - literals.len())
}

fn usable(mut literals: Seq) -> Option<Vec<Vec<u8>>> {
    literals.keep_first_bytes(16);
    literals.dedup();
    let all = literals.literals()?;
    let is_usable = !all.is_empty()
        && all.len() <= LITERALS_MAX
        && all.iter().all(|literal| literal.as_bytes().len() >= BYTES_MIN)
        // Holes are in no pack.
        && !all.iter().any(|literal| literal.as_bytes().contains(&0));
    is_usable.then(|| all.iter().map(|literal| literal.as_bytes().to_vec()).collect())
}
