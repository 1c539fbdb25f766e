// Command pin writes into a Compose file the digests that the tags of its images have in their
// registries, so that the same file gives the same images for good.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pin COMPOSE-FILE")
		os.Exit(2)
	}
	if err := pin(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pin:", err)
		os.Exit(1)
	}
}

// image is a line of a Compose file: an image of a registry with a version, and perhaps its digest.
var image = regexp.MustCompile(`(?m)^(\s*image: )([a-z0-9.-]+(?:\.[a-z]+|:\d+)/\S+:v?\d+\.\d+\.\d+)(?:@sha256:[0-9a-f]{64})?$`)

// pin changes the file only if every registry answers.
func pin(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var failed error
	pinned := image.ReplaceAllFunc(text, func(line []byte) []byte {
		m := image.FindSubmatch(line)
		digest, err := digestOf(string(m[2]))
		if err != nil {
			failed = errors.Join(failed, err)
		}
		return fmt.Appendf(nil, "%s%s@%s", m[1], m[2], digest)
	})
	if failed != nil {
		return failed
	}
	return os.WriteFile(path, pinned, 0o644)
}

// digestOf asks the registry of an image for the digest of its tag, which is that of all platforms.
func digestOf(image string) (string, error) {
	tag, err := name.NewTag(image)
	if err != nil {
		return "", err
	}
	found, err := remote.Head(tag)
	if err != nil {
		return "", fmt.Errorf("find digest of %s: %w", image, err)
	}
	return found.Digest.String(), nil
}
