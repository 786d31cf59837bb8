//! `#[derive(Ports)]`: the named, typed output ports of a stage.
//!
//! For a struct `P` whose fields are all `Out<T>` it makes `PRefs`, a `Copy` struct with a handle
//! `Port<T>` under each field's name, and implements `Ports` for `P`.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Fields, GenericArgument, PathArguments, Type, parse_macro_input,
};

/// Makes a struct of `Out<T>` fields the ports of a stage: each field is a port of its name.
///
/// ```
/// use comporta::{App, Out, Ports};
///
/// #[derive(Ports)]
/// struct Parsed {
///     good: Out<u64>,
///     bad: Out<String>,
/// }
///
/// let app = App::new("parser");
/// let parse = app.stage("parse", |text: String, out: &mut Parsed| match text.parse() {
///     Ok(number) => out.good.send(number),
///     Err(_) => out.bad.send(text),
/// });
/// let store = app.sink("store", |number: u64| println!("{number}"));
/// let complain = app.sink("complain", |text: String| println!("`{text}` is no number"));
/// app.connect(parse.good, store);
/// app.connect(parse.bad, complain);
/// ```
#[proc_macro_derive(Ports)]
pub fn derive_ports(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    ports(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn ports(input: &DeriveInput) -> Result<Tokens, Error> {
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), "ports cannot be generic"));
    }
    let wrong = |span| Error::new(span, "ports are a struct with named fields of type `Out<T>`");
    let Data::Struct(data) = &input.data else { return Err(wrong(input.ident.span())) };
    let Fields::Named(fields) = &data.fields else { return Err(wrong(input.ident.span())) };
    if fields.named.is_empty() {
        return Err(Error::new(input.ident.span(), "a stage without ports says `type Ports = ()`"));
    }
    let (mut names, mut types, mut views) = (Vec::new(), Vec::new(), Vec::new());
    for field in &fields.named {
        names.extend(field.ident.clone());
        types.push(carried(&field.ty)?);
        views.push(&field.vis);
    }
    let texts = names.iter().map(ToString::to_string);
    let indices: Vec<u32> = (0..).take(names.len()).collect();
    let places: Vec<usize> = (0..names.len()).collect();
    let (name, view) = (&input.ident, &input.vis);
    let refs = format_ident!("{name}Refs");
    let doc = format!("Handles to the ports of [`{name}`], for `connect`.");
    Ok(quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug)]
        #view struct #refs {
            #( #[doc = "This port."] #views #names: ::comporta::ports::Port<#types>, )*
        }

        impl ::comporta::ports::Ports for #name {
            type Refs = #refs;
            const NAMES: &'static [&'static str] = &[#(#texts),*];

            fn new() -> Self {
                let turns = ::comporta::ports::Turns::shared();
                #name { #( #names: ::comporta::ports::Out::one_of(&turns, #indices), )* }
            }

            fn refs(of: ::comporta::ports::StageKey) -> #refs {
                #refs { #( #names: ::comporta::ports::Port::of(of, #places), )* }
            }

            #[inline(always)]
            fn each<V: ::comporta::ports::PortVisitor>(&mut self, visitor: &mut V) {
                #( visitor.port(#places, &mut self.#names); )*
            }

            fn append(&mut self, from: &mut Self) {
                #( let mut #names = from.#names.take_sent(); )*
                let mut runs = ::std::vec::Vec::new();
                #( runs.extend(#names.runs(#places)); )*
                ::comporta::ports::in_turn(runs.into_iter(), |port, n| match port {
                    #( #places => self.#names.append(&mut #names, n), )*
                    _ => {}
                });
            }
        }
    })
}

/// The `T` of `Out<T>`.
fn carried(field: &Type) -> Result<&Type, Error> {
    let wrong = || Error::new(field.span(), "a port is of type `Out<T>`");
    let Type::Path(path) = field else { return Err(wrong()) };
    let last = path.path.segments.last().filter(|last| last.ident == "Out").ok_or_else(wrong)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Err(wrong()) };
    match arguments.args.first() {
        Some(GenericArgument::Type(carried)) if arguments.args.len() == 1 => Ok(carried),
        _ => Err(wrong()),
    }
}
