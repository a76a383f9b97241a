//! The body of a Messages call, read as far as it could become a job; a larger one is left where it is.
//!
//! The API takes 32 MB. An isolate has 128 MB for all of its calls, and Wasm memory that has grown stays so: a body of that size
//! would be held in it two or three times over. So what is larger than a job's goes on as a stream, from the caller's connection to the
//! upstream's, without coming into Wasm at all, but for its first piece: the model stands there in the bodies of official SDKs, and
//! whose gate is shut is not called. Such a call is made once and never becomes a job: once sent, nothing is left of it.

use js_sys::{Function, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use worker::{Context, Request, Result};

use super::{http, js};
use crate::api::error::{ApiError, ErrorKind};
use crate::submission::{MAX_BODY_BYTES, MAX_CALL_BYTES};

/// A call's body.
pub(super) enum CallBody {
    /// All of it.
    Whole(Vec<u8>),
    /// Its beginning, and a stream of all of it.
    Large(Vec<u8>, JsValue),
}

impl CallBody {
    /// As much of it as is in Wasm.
    pub(super) fn beginning(&self) -> &[u8] {
        let (Self::Whole(body) | Self::Large(body, _)) = self;
        body
    }
}

/// Reads the body of a call.
pub(super) async fn read(request: &mut Request, context: &Context) -> std::result::Result<CallBody, ApiError> {
    let announced = request.headers().get("content-length").ok().flatten();
    let announced = announced.and_then(|length| length.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_CALL_BYTES) {
        // To its end, for a client that is still writing would not read the answer.
        let _ = http::read_body(request).await;
        let message = format!("a call has at most {MAX_CALL_BYTES} bytes");
        return Err(ApiError::new(ErrorKind::TooLarge, message));
    }
    let source = JsValue::from(request.inner().body());
    if !source.is_object() {
        return Ok(CallBody::Whole(Vec::new()));
    }
    let broken = |_| ApiError::new(ErrorKind::InvalidRequest, "the body broke off");
    if announced.is_some_and(|length| length <= MAX_BODY_BYTES) {
        let buffer = js::settle(request.inner(), "arrayBuffer", &[]).await.map_err(broken)?;
        return Ok(CallBody::Whole(Uint8Array::new(&buffer).to_vec()));
    }
    let reader = js::call(&source, "getReader", &[]).map_err(broken)?;
    let enough = if announced.is_some_and(|length| length > MAX_BODY_BYTES) { 0 } else { MAX_BODY_BYTES };
    let mut begun = Vec::new();
    while let Some(chunk) = next(&reader).await.map_err(broken)? {
        begun.extend_from_slice(&chunk.to_vec());
        if begun.len() > enough {
            js::call(&reader, "releaseLock", &[]).map_err(broken)?;
            let stream = whole(&begun, &source, announced, context).map_err(broken)?;
            begun.truncate(FIRST_BYTES);
            return Ok(CallBody::Large(begun, stream));
        }
    }
    Ok(CallBody::Whole(begun))
}

async fn next(reader: &JsValue) -> Result<Option<Uint8Array>> {
    let read = js::settle(reader, "read", &[]).await?;
    Ok(Reflect::get(&read, &"value".into())?.dyn_into::<Uint8Array>().ok())
}

/// The stream of a body, whose beginning has been read. It pipes itself.
fn whole(begun: &[u8], rest: &JsValue, length: Option<usize>, context: &Context) -> Result<JsValue> {
    // With a length, where there is one: not every server takes a body in pieces.
    let (class, arguments) = match length {
        Some(length) => ("FixedLengthStream", js_sys::Array::of1(&js_number(length))),
        None => ("IdentityTransformStream", js_sys::Array::new()),
    };
    let class = Reflect::get(&js_sys::global(), &class.into())?.unchecked_into::<Function>();
    let pipe = Reflect::construct(&class, &arguments)?;
    let writable = Reflect::get(&pipe, &"writable".into())?;
    let writer = js::call(&writable, "getWriter", &[])?;
    let written = js::call(&writer, "write", &[js::bytes(begun)])?.unchecked_into::<js_sys::Promise>();
    js::call(&writer, "releaseLock", &[])?;
    let piped = js::call(rest, "pipeTo", &[writable])?.unchecked_into::<js_sys::Promise>();
    context.wait_until(async move {
        // What breaks off here breaks the call, which says so.
        let _ = JsFuture::from(written).await;
        let _ = JsFuture::from(piped).await;
    });
    Ok(Reflect::get(&pipe, &"readable".into())?)
}

fn js_number(length: usize) -> JsValue {
    u32::try_from(length).unwrap_or(u32::MAX).into()
}

/// As much of a large body is looked into.
const FIRST_BYTES: usize = 4_096;
