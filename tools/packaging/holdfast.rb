class Holdfast < Formula
  desc "Distributed locks for the command line"
  homepage "https://github.com/holdfast-go/holdfast"
  version "${VERSION}"
  license "MIT"

  on_macos do
    on_arm do
      url "https://github.com/holdfast-go/holdfast/releases/download/v${VERSION}/holdfast_${VERSION}_darwin_arm64.tar.gz"
      sha256 "${SHA256_darwin_arm64}"
    end
    on_intel do
      url "https://github.com/holdfast-go/holdfast/releases/download/v${VERSION}/holdfast_${VERSION}_darwin_amd64.tar.gz"
      sha256 "${SHA256_darwin_amd64}"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/holdfast-go/holdfast/releases/download/v${VERSION}/holdfast_${VERSION}_linux_arm64.tar.gz"
      sha256 "${SHA256_linux_arm64}"
    end
    on_intel do
      url "https://github.com/holdfast-go/holdfast/releases/download/v${VERSION}/holdfast_${VERSION}_linux_amd64.tar.gz"
      sha256 "${SHA256_linux_amd64}"
    end
  end

  def install
    bin.install "holdfast", "holdfast-etcd", "holdfast-s3"
    man1.install Dir["man/*.1.gz"]
    bash_completion.install "completions/holdfast.bash" => "holdfast"
    fish_completion.install "completions/holdfast.fish"
    zsh_completion.install "completions/holdfast.zsh" => "_holdfast"
  end

  test do
    assert_equal "held", shell_output("#{bin}/holdfast run test --store file:#{testpath}/locks -- echo held").chomp
  end
end
