"""What an app does with the official Python SDK; a line of JSON says what came of it. Driven by messages-python.test.mjs."""

import json
import sys

import anthropic


def call(text, **more):
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": text}],
        **more,
    }


def told(message, headers=None):
    return {
        "type": message.type,
        "stop_reason": message.stop_reason,
        "blocks": [block.type for block in message.content],
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "headers": {name: value for name, value in (headers or {}).items() if name.startswith("spillway-")},
    }


def create(claude, text, headers):
    raw = claude.messages.with_raw_response.create(**call(text), extra_headers=headers)
    return told(raw.parse(), raw.headers)


def stream(claude, text, headers):
    with claude.messages.stream(**call(text), extra_headers=headers) as stream:
        parts = list(stream.text_stream)
        message = stream.get_final_message()
    return {**told(message), "joined": "".join(parts)}


def tools(claude, text, headers):
    tool = {"name": "weather", "description": "w", "input_schema": {"type": "object", "properties": {}}}
    asked = call(text, max_tokens=2000, tools=[tool], thinking={"type": "adaptive"}, betas=["context-1m-2025-08-07"])
    raw = claude.beta.messages.with_raw_response.create(**asked, extra_headers=headers)
    return told(raw.parse(), raw.headers)


def leave(claude, text, headers):
    with claude.messages.stream(**call(text, max_tokens=4000), extra_headers=headers) as stream:
        return {"first": next(iter(stream.text_stream))}


def count(claude, text, headers):
    counted = call(text)
    del counted["max_tokens"]
    return {"input_tokens": claude.messages.count_tokens(**counted).input_tokens}


def main():
    base_url, key, what, text, headers = sys.argv[1:]
    claude = anthropic.Anthropic(base_url=base_url, api_key=key)
    try:
        do = {"create": create, "stream": stream, "tools": tools, "leave": leave, "count": count}[what]
        result = do(claude, text, json.loads(headers))
    except anthropic.APIStatusError as error:
        result = {
            "error": type(error).__name__,
            "status": error.status_code,
            "body": error.body,
            "request_id": error.request_id,
            "job": error.response.headers.get("spillway-job"),
        }
    print(json.dumps(result))


main()
