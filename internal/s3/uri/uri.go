package uri

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// A Location is where objects are: s3://BUCKET/PREFIX?endpoint=URL&region=NAME.
type Location struct {
	Bucket string
	// Prefix is the first part of all keys, without slashes at its ends; it may be empty.
	Prefix string
	// Host is the host of the endpoint, and its port if that is not the usual one; empty for AWS.
	Host string
	// Plain says that the endpoint is asked without TLS.
	Plain bool
	// Region is empty where the environment or the default decides.
	Region string
}

const form = "s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME"

var (
	bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)
	regionForm = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// longestPrefix leaves room for the names below it in a key, which has up to 1024 bytes.
const longestPrefix = 512

// Parse reads the URL of a bucket. No error shows the URL, which may have a secret in a wrong
// place.
func Parse(text string) (l Location, err error) {
	u, err := url.Parse(text)
	isBucket := err == nil && u.Scheme == "s3" && u.Opaque == "" && u.Fragment == ""
	switch {
	case !isBucket:
		return l, errors.New("must be the URL of a bucket: " + form)
	case u.User != nil:
		return l, errors.New("must have no credentials in it: they come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or from a file (AWS_SHARED_CREDENTIALS_FILE)")
	case !bucketForm.MatchString(u.Host) || strings.Contains(u.Host, ".."):
		return l, errors.New("must name a bucket with 3 to 63 small letters, digits, hyphens or dots: " + form)
	}
	l.Bucket = u.Host
	l.Prefix = strings.Trim(u.Path, "/")
	isPrefix := prefixForm.MatchString(l.Prefix) && len(l.Prefix) <= longestPrefix && !dotted(l.Prefix)
	if l.Prefix != "" && !isPrefix {
		return l, fmt.Errorf("must have a prefix of up to %d letters, digits, dots, underscores, hyphens and single slashes", longestPrefix)
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, errors.New("must have options of the form NAME=VALUE: " + form)
	}
	for name, values := range options {
		switch {
		case len(values) != 1:
			return l, fmt.Errorf("has the option %q more than once", name)
		case name == "endpoint":
			err = l.ask(values[0])
		case name == "region" && regionForm.MatchString(values[0]):
			l.Region = values[0]
		case name == "region":
			err = errors.New("must have a region of small letters, digits and hyphens, such as eu-central-1")
		default:
			err = errors.New("knows the options endpoint and region only: " + form)
		}
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// dotted reports whether a part of a prefix is a name that file systems and proxies resolve.
func dotted(prefix string) bool {
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// ask sets the endpoint.
func (l *Location) ask(endpoint string) error {
	u, err := url.Parse(endpoint)
	isHTTP := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	if !isHTTP || u.Host == "" || hasMore(u) {
		return errors.New("must have an endpoint of the form https://HOST or http://HOST:PORT, without a path")
	}
	l.Host = u.Host
	l.Plain = u.Scheme == "http"
	return nil
}

// hasMore reports whether a URL has more than a protocol and a host.
func hasMore(u *url.URL) bool {
	return u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != ""
}
