//! The lines of an `impl`: public methods and constants, or the trait that is implemented.

use syn::{Generics, Ident, ImplItem, ItemImpl, Path, parse_quote};

use crate::public_api::{attributes, items, names, spelling};

/// The methods and constants of a type that its `impl` makes public, each with what it adds to the path.
pub(crate) fn inherent(block: &ItemImpl) -> Vec<(String, Option<&'static str>, String)> {
    let head = match spelling::is_bound(&block.generics) {
        true => format!(" in {}", spelling::head(block)),
        false => String::new(),
    };
    let line = |item: &ImplItem| {
        let (attrs, name, text) = match item {
            ImplItem::Fn(one) if names::is_public(&one.vis) => {
                (&one.attrs, &one.sig.ident, spelling::function(&one.vis, &one.sig))
            }
            ImplItem::Const(one) if names::is_public(&one.vis) => {
                let ty = &one.ty;
                let text =
                    spelling::one_line(parse_quote!(type C = #ty;)).replace("type C = ", "pub const: ");
                (&one.attrs, &one.ident, text)
            }
            _ => return None,
        };
        let text = format!("{}{text}{head}", items::marks(attrs));
        attributes::is_seen(attrs).then(|| (format!("::{name}"), attributes::feature(attrs), text))
    };
    block.items.iter().filter_map(line).collect()
}

/// `impl Trait for Type`, with the types that belong to it.
pub(crate) fn of_trait(block: &ItemImpl) -> String {
    let types = block.items.iter().filter_map(|item| match item {
        ImplItem::Type(one) => {
            let (name, ty) = (&one.ident, &one.ty);
            Some(spelling::one_line(parse_quote!(type #name = #ty;)))
        }
        _ => None,
    });
    match types.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => spelling::head(block),
        types => format!("{} {{ {types} }}", spelling::head(block)),
    }
}

/// What `#[derive(Trait)]` writes.
pub(crate) fn derived(what: &Path, name: &Ident, generics: &Generics) -> String {
    let (_, of_type, _) = generics.split_for_impl();
    let mut bound = generics.clone();
    bound.type_params_mut().for_each(|one| one.bounds.push(parse_quote!(#what)));
    let (params, _, clause) = bound.split_for_impl();
    spelling::head(&parse_quote!(impl #params #what for #name #of_type #clause {}))
}
