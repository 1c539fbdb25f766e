// Command sbom writes the contents of a Go binary as CycloneDX JSON: its modules with version and
// checksum, and the Go release that built it.
//
//	sbom v1.2.3 bin/streamer > streamer.cdx.json
//
// It reads the records of the Go linker in the binary, so it lists the linked modules, and not
// those that go.mod allows.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: sbom VERSION BINARY")
	}
	info, err := buildinfo.ReadFile(args[1])
	if err != nil {
		return err
	}
	encoder := cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON)
	return encoder.SetPretty(true).EncodeVersion(bom(args[0], info), cdx.SpecVersion1_6)
}

// bom lists the modules of a binary.
func bom(version string, info *buildinfo.BuildInfo) *cdx.BOM {
	b := cdx.NewBOM()
	program := component(cdx.ComponentTypeApplication, info.Main.Path, version, "")
	program.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	b.Metadata = &cdx.Metadata{Component: &program}
	all := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go"), "")}
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		all = append(all, component(cdx.ComponentTypeLibrary, m.Path, m.Version, sum(m)))
	}
	b.Components = &all
	return b
}

func component(kind cdx.ComponentType, path, version, hash string) cdx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", path, version)
	c := cdx.Component{Type: kind, Name: path, Version: version, PackageURL: url, BOMRef: url}
	if hash != "" {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}}
	}
	return c
}

// sum is a module's checksum of go.sum, which is a SHA-256 of its files' SHA-256s.
func sum(m *debug.Module) string {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return ""
	}
	return hex.EncodeToString(raw)
}
