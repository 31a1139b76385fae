//! Tests of the handlers and stories of the recipes, and of the pages that show them.

mod handlers;
mod page;
mod stories;
