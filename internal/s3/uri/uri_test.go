package uri_test

import (
	"strings"
	"testing"

	"github.com/mongostream/streamer/internal/s3/uri"
)

func TestBucketsAreNamedByURLs(t *testing.T) {
	for text, want := range map[string]uri.Location{
		"s3://logs":             {Bucket: "logs"},
		"s3://logs/":            {Bucket: "logs"},
		"s3://my.logs/a/b-c_d/": {Bucket: "my.logs", Prefix: "a/b-c_d"},
		"s3://logs/a?region=eu-central-1&endpoint=https://abc.r2.example.com": {Bucket: "logs", Prefix: "a", Host: "abc.r2.example.com", Region: "eu-central-1"},
		"s3://logs?endpoint=http://127.0.0.1:7070/":                           {Bucket: "logs", Host: "127.0.0.1:7070", Plain: true},
		"s3://logs?endpoint=http%3A%2F%2F%5B%3A%3A1%5D%3A7070":                {Bucket: "logs", Host: "[::1]:7070", Plain: true},
	} {
		if got, err := uri.Parse(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// What is not understood is refused, and what may be a secret is not shown.
func TestURLsThatAreNotUnderstoodAreRefused(t *testing.T) {
	const secret = "hunter2"
	for _, text := range []string{
		"", "logs", "file:///logs", "s3:logs", "s3:///a", "s3://", "s3://lo", "s3://Logs", "s3://a..b", "s3://-logs", "s3://logs:9000", "s3://" + strings.Repeat("a", 64),
		"s3://key:" + secret + "@logs/a", "s3://" + secret + "@logs", "s3://logs/a b", "s3://logs/a//b", "s3://logs/../b", "s3://logs/a/./b", "s3://logs/a%20b", "s3://logs/%2e%2e/b",
		"s3://logs/" + strings.Repeat("a", 513), "s3://logs#" + secret, "s3://logs?secret=" + secret, "s3://logs?" + secret, "s3://logs?region=a&region=b", "s3://logs?region=", "s3://logs?region=A b",
		"s3://logs?endpoint=", "s3://logs?endpoint=host:9000", "s3://logs?endpoint=ftp://host", "s3://logs?endpoint=http://host/path", "s3://logs?endpoint=http://u:" + secret + "@host", "s3://logs?endpoint=http://host?" + secret,
		"s3://logs?endpoint=http://host;x=" + secret, "s3://logs/%zz" + secret,
	} {
		l, err := uri.Parse(text)
		if err == nil {
			t.Errorf("%q is understood as %+v", text, l)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the error shows a secret: %v", text, err)
		}
	}
}
