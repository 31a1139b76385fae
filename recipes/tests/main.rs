//! The recipes: their handlers, their stories, and the pages that show both.

mod handlers;
mod page;
mod stories;
