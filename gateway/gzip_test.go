package gateway

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Fragments in any order are one gzip file with the same texts, and each can be read alone: the
// size of one tells nothing of the others.
func TestFragmentsAreIndependent(t *testing.T) {
	all := newCompressor()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.StringMatching(`[a-d]{0,40}`)
		g := gzipped{compressor: all}
		file, want := g.begin(nil), []byte(nil)
		for range rapid.IntRange(0, 20).Draw(t, "texts") {
			text := []byte(strings.Repeat(words.Draw(t, "text"), rapid.SampledFrom([]int{1, 1, 1, 5, 5_000}).Draw(t, "times")))
			want = append(want, text...)
			from := len(file)
			file = g.seal(append(file, text...))
			if alone, err := io.ReadAll(flate.NewReader(bytes.NewReader(append(slices.Clone(file[from:]), 3, 0)))); len(text) > 0 && (err != nil || !bytes.Equal(alone, text)) {
				t.Fatalf("%q alone: %.100q, %v", text, alone, err)
			}
		}
		g.written()
		r, err := gzip.NewReader(bytes.NewReader(append(file, g.end()...)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d: %v", len(got), len(want), err)
		}
	})
}

// A text is compressed once, whoever asks for it, and what is remembered is bounded.
func TestFragmentsAreMadeOnceAndForgotten(t *testing.T) {
	all := newCompressor()
	text := []byte(strings.Repeat("the same text ", 10_000))
	got := make([][]byte, 16)
	var asking sync.WaitGroup
	for i := range got {
		asking.Go(func() { got[i] = all.fragment(bytes.Clone(text)) })
	}
	asking.Wait()
	for _, data := range got {
		if &data[0] != &got[0][0] {
			t.Fatal("a text was compressed twice")
		}
	}
	for i := range 3 * maxKept / len(text) {
		all.fragment(append([]byte{byte(i), byte(i >> 8)}, text...))
		if kept := (len(all.mu.recent) + len(all.mu.earlier)) * 2 * len(text); kept > 2*maxKept {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
	if again := all.fragment(text); &again[0] == &got[0][0] {
		t.Error("a text is kept for ever")
	}
	large := make([]byte, maxKept/2+1)
	if all.fragment(large); all.mu.recent[string(large)] != nil {
		t.Error("a large text is kept")
	}
}

// Nobody waits for the texts of others: one that comes while every writer works is left as it is,
// and so is one that is too large to be shared.
func TestWhatCannotBeCompressedAtOnceIsNotCompressed(t *testing.T) {
	all, text := newCompressor(), []byte(strings.Repeat("a text ", 20_000))
	for range runtime.GOMAXPROCS(0) {
		<-all.writers
	}
	for what, text := range map[string][]byte{"all writers work": text, "it is large": make([]byte, maxKept/2+1)} {
		fragment := all.fragment(text)
		got, err := io.ReadAll(flate.NewReader(bytes.NewReader(append(slices.Clone(fragment), 3, 0))))
		if err != nil || !bytes.Equal(got, text) || len(fragment) < len(text) || len(fragment) > len(text)+len(text)/1000 {
			t.Errorf("%s: %d bytes of %d, %v", what, len(fragment), len(text), err)
		}
	}
	all.writers <- nil
	if fragment := all.fragment(append(text, "more"...)); len(fragment) > len(text)/10 {
		t.Errorf("%d bytes of %d when a writer is free", len(fragment), len(text))
	}
}

func TestWhoAcceptsGzip(t *testing.T) {
	for accepts, want := range map[string]bool{
		"": false, "gzip": true, "GZip, deflate": true, "br": false, "deflate, gzip;q=1.0, *;q=0.5": true, "gzip;q=0": false, "gzip; q=0.001": true,
		"*": true, "*;q=0": false, "identity": false, "identity, gzip;q=0.5": false, "identity;q=0.5, gzip": true, "gzip;q=x": false, "gzip;level=9": false,
		"*, gzip;q=0": false, ",;,": false,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {accepts}}); got != want {
			t.Errorf("%q: %t", accepts, got)
		}
	}
	if !acceptsGzip(http.Header{"Accept-Encoding": {"br", "gzip"}}) || acceptsGzip(http.Header{}) {
		t.Error("of two lines, or none")
	}
}
