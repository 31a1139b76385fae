//! The dashboard in a real browser, before a real server.
mod access;
mod acting;
mod burning;
mod hostile;
mod looking;
mod refreshing;
mod scale;
mod scene;
mod shots;
mod tailing;
mod trouble;
