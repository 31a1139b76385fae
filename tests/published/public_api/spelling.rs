//! Declarations as one line of text, without bodies, attributes and what only bodies see.

use syn::{File, FnArg, Generics, Item, ItemImpl, Pat, Path, ReceiverKind, Signature, Visibility};

/// The item as rustfmt would write it if lines had no end.
pub(crate) fn one_line(item: Item) -> String {
    let text = prettyplease::unparse(&File {
        shebang: None,
        attrs: Vec::new(),
        items: vec![item],
        frontmatter: None,
    });
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pairs =
        [("( ", "("), (", )", ")"), (" )", ")"), ("< ", "<"), (", >", ">"), (", {", " {"), (" {}", "")];
    let text = pairs.into_iter().fold(text, |text, (from, to)| text.replace(from, to));
    text.trim_end_matches([',', ';']).replace(" .", ".")
}

pub(crate) fn function(visibility: &Visibility, signature: &Signature) -> String {
    let mut signature = signature.clone();
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                receiver.attrs.clear();
                if matches!(receiver.kind, ReceiverKind::Value) {
                    receiver.mutability = None;
                }
            }
            FnArg::Typed(typed) => {
                typed.attrs.clear();
                if let Pat::Ident(name) = &mut *typed.pat {
                    name.mutability = None;
                }
            }
        }
    }
    one_line(syn::parse_quote!(#visibility #signature {}))
}

/// `impl<T: Bound> Type<T>`, without what it holds.
pub(crate) fn head(block: &ItemImpl) -> String {
    let mut empty = ItemImpl { attrs: Vec::new(), items: Vec::new(), ..block.clone() };
    // `fmt::Debug` and `Debug` are one trait.
    if let Some((path, _)) = &mut empty.trait_ {
        let last = path.segments.pop();
        *path = Path { leading_colon: None, segments: last.into_iter().collect() };
    }
    one_line(Item::Impl(empty))
}

/// Whether the parameters are bound to anything, so that what an `impl` holds is not there for all.
pub(crate) fn is_bound(generics: &Generics) -> bool {
    let of_types = generics.type_params().any(|one| !one.bounds.is_empty());
    of_types || generics.where_clause.is_some()
}
