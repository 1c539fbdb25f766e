// Command image writes a container image as an OCI archive, without a container engine.
//
//	image -version v1.2.3 -o streamer.oci.tar linux/amd64=bin/linux-amd64/streamer linux/arm64=…
//
// The image has one layer with the static binary, the certificate authorities of Mozilla's
// programme, and a user without rights. The same binaries give the same archive, byte for byte:
// skopeo, podman, crane and containerd read it. The same image comes from deploy/Containerfile
// where a container engine is at hand.
package main
